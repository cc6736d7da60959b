# SPDX-License-Identifier: Apache-2.0
"""What an import of the trainer side brings into a training process."""

import subprocess
import sys

HEAVY = (
    "numpy",
    "ray",
    "torch",
    "verl",
    "msprobe",
    "yaml",
    "msgspec",
    "pyarrow",
    "prometheus_client",
    "rich",
    "asyncio",
)


def modules_after(statement):
    code = f"import sys; before = set(sys.modules); {statement}; print('\\n'.join(sorted(set(sys.modules) - before)))"
    environment = {"PATH": "/usr/bin:/bin", "SENTINEL_RUN": "r"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    return set(done.stdout.split())


def test_the_plugin_brings_in_the_standard_library_and_nothing_else():
    """verl imports it in every process, the launcher and each worker included."""
    loaded = modules_after("import sentinel.trainer.plugin")

    own = {name for name in loaded if name.split(".")[0] == "sentinel"}
    assert own <= {"sentinel", "sentinel.trainer"} | {
        f"sentinel.trainer.{name}"
        for name in (
            "after_import",
            "backward",
            "arming",
            "describing",
            "door",
            "driver",
            "dump_folder",
            "emitter",
            "flight_recorder",
            "footprint",
            "fuse",
            "golden",
            "link",
            "listing",
            "orders",
            "plugin",
            "probe",
            "reach",
            "receipts",
            "recording",
            "reruns",
            "seeding",
            "session",
            "token_gaps",
            "values",
            "wanted",
        )
    }
    assert {name.split(".")[0] for name in loaded} - {"sentinel"} <= set(sys.stdlib_module_names)
    assert not loaded & set(HEAVY)


def test_importing_sentinel_imports_nothing():
    assert modules_after("import sentinel") == {"sentinel"}


def test_the_command_line_starts_without_ray_torch_or_numpy():
    assert not modules_after("import sentinel.cli") & {"ray", "torch", "numpy", "pyarrow", "verl"}


def test_the_callback_brings_in_no_more():
    """A training script of anyone's imports it at its top."""
    assert not modules_after("import sentinel.callback") & set(HEAVY)
