# SPDX-License-Identifier: Apache-2.0
"""Makes tests/data/dumps.zip: real msprobe dumps of a two-layer model, of every level and task, healthy and with faults.

python -m bench.triage_samples
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

TARGET = Path(__file__).parent.parent / "tests" / "data" / "dumps.zip"
# Only these tensors are kept: each small file costs a kilobyte.
TENSORS = "Module.model.layers.1.mlp."
# name -> level, task, summary mode, fault (module, kind, size), structure
SAMPLES: dict[str, tuple] = {
    "l0": ("L0", "statistics", "statistics", None, "plain"),
    "l1": ("L1", "statistics", "statistics", None, "plain"),
    "mix": ("mix", "statistics", "statistics", None, "plain"),
    "md5": ("L0", "statistics", "md5", None, "plain"),
    "xor": ("L0", "statistics", "xor", None, "plain"),
    "tensor": ("L0", "tensor", "statistics", None, "plain"),
    "tensor-other": ("L0", "tensor", "statistics", ("model.layers.1.mlp.up_proj", "noise", 0.001), "plain"),
    "l1-scaled": ("L1", "statistics", "statistics", ("model.layers.1.mlp.up_proj", "scale", 1.05), "plain"),
    "mix-scaled": ("mix", "statistics", "statistics", ("model.layers.1.mlp.up_proj", "scale", 1.05), "plain"),
    "mix-scaling": ("mix", "statistics", "statistics", ("model.layers.0.self_attn", "scaling", 1.3), "plain"),
    "mix-inf": ("mix", "statistics", "statistics", ("model.layers.0.self_attn.v_proj", "ninf", 1), "plain"),
    "xor-scaled": ("L0", "statistics", "xor", ("model.layers.1.mlp.up_proj", "scale", 1.05), "plain"),
    "recomputed": ("L0", "statistics", "statistics", None, "recomputed"),
    "repeated": ("L0", "statistics", "statistics", None, "repeated"),
}


def main() -> int:
    with (
        tempfile.TemporaryDirectory() as folder,
        zipfile.ZipFile(TARGET, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive,
    ):
        for name in SAMPLES:
            command = [sys.executable, "-W", "ignore", "-m", "bench.triage_samples", name, folder]
            subprocess.run(command, check=True, env={**os.environ, "MSPROBE_LOG_LEVEL": "4"}, stdout=subprocess.DEVNULL)
        for path in sorted(Path(folder).rglob("*")):
            if path.is_dir() or path.name in {"config.json", "pairs.json"}:
                continue
            if path.suffix == ".pt" and not path.name.startswith(TENSORS):
                continue
            data = path.read_bytes()
            if path.suffix == ".json":
                found = json.loads(data)
                if path.name == "stack.json":
                    # Stacks hold the paths of the machine.
                    found = {key: [value[0], []] for key, value in found.items()}
                elif path.name == "dump.json" and found.get("dump_data_dir"):
                    found["dump_data_dir"] = "/dumps/dump_tensor_data"
                data = json.dumps(found, separators=(",", ":")).encode()
            archive.writestr(zipfile.ZipInfo(str(path.relative_to(folder))), data, zipfile.ZIP_DEFLATED)
    print(f"{TARGET}: {TARGET.stat().st_size} bytes")
    return 0


def one(name: str, folder: Path) -> None:
    """Dump one sample; msprobe's debugger is one a process."""
    from bench import triage_corpus, triage_models
    from bench.triage_faults import Fault

    triage_models.LAYERS, triage_models.HIDDEN, triage_models.BATCH = 2, 16, 2
    level, task, mode, fault, structure = SAMPLES[name]
    plan = triage_models.PLANS[0]
    studio = triage_corpus.Studio(plan, folder / name, "cpu", level=level, task=task, mode=mode, layers=2)
    studio.dump("step0", fault=None if fault is None else Fault(*fault), structure=structure, other_golden=False)


if __name__ == "__main__":
    sys.exit(main() if len(sys.argv) == 1 else one(sys.argv[1], Path(sys.argv[2])))
