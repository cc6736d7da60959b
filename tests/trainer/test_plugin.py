# SPDX-License-Identifier: Apache-2.0
"""The plugin against a stand-in of verl's module layout: real imports, a real frame stack, no Ray."""

import json
import sys
import textwrap
import time

import pytest

from sentinel.trainer.after_import import AfterImport
from sentinel.trainer.plugin import Plugin
from sentinel.trainer.wanted import read_orders, wanted

TRACKING = """
class Tracking:
    def __init__(self):
        self.seen = []
    def log(self, data, step, backend=None):
        self.seen.append((step, dict(data), backend))
        return "logged"
"""

TRAINER = """
from verl.utils.tracking import Tracking

class RayPPOTrainer:
    use_reference_policy = True
    use_critic = False
    actor_rollout_wg = None
    total_training_steps = 3
    def __init__(self):
        self.global_steps = 0
        self.calls = []
    def _start_profiling(self, do_profile=False):
        self.calls.append(("start", self.global_steps, do_profile))
    def _stop_profiling(self, do_profile=False, run_command=False):
        self.calls.append(("stop", self.global_steps, do_profile))
    def fit(self, metrics):
        logger = Tracking()
        for step, values in enumerate(metrics, start=1):
            self.global_steps = step
            self._start_profiling(False)
            self._stop_profiling(False)
            logger.log(data=values, step=step)
        return logger
"""


@pytest.fixture
def fake_verl(tmp_path, monkeypatch):
    """A package named verl with the two modules that matter; taken out of sys.modules afterwards."""
    root = tmp_path / "site"
    for folder in ("verl", "verl/utils", "verl/trainer", "verl/trainer/ppo"):
        (root / folder).mkdir(parents=True)
        (root / folder / "__init__.py").write_text("__version__ = '0.9.1'\n")
    (root / "verl/utils/tracking.py").write_text(TRACKING)
    (root / "verl/trainer/ppo/ray_trainer.py").write_text(TRAINER)
    saved = {name: sys.modules.pop(name) for name in list(sys.modules) if name.split(".")[0] == "verl"}
    monkeypatch.syspath_prepend(str(root))
    yield root
    for name in [name for name in sys.modules if name.split(".")[0] == "verl"]:
        del sys.modules[name]
    sys.modules.update(saved)


def lines_of(path, count):
    """The recorded lines, once there are `count`: the emitter's thread writes them when it is given the time."""
    end = time.monotonic() + 10
    while time.monotonic() < end:
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        if text.count("\n") >= count:
            return [json.loads(line) for line in text.splitlines()]
        time.sleep(0.01)
    raise AssertionError(f"{count} lines were expected: {text}")


def test_nothing_happens_unless_a_run_is_named(fake_verl):
    plugin = Plugin({})
    from verl.utils import tracking

    assert not hasattr(tracking.Tracking.log, "__wrapped__")
    assert plugin.finder not in sys.meta_path


def test_disabled_means_off_whatever_else_is_set(fake_verl, tmp_path):
    plugin = Plugin({"SENTINEL_DISABLED": "1", "SENTINEL_RECORD": str(tmp_path / "r.jsonl")})
    from verl.utils import tracking

    assert not hasattr(tracking.Tracking.log, "__wrapped__")
    assert plugin.driver is None


def test_a_recording_run_leaves_its_steps_facts_and_end_behind(fake_verl, tmp_path):
    record = tmp_path / "ref.jsonl"
    plugin = Plugin({"SENTINEL_RECORD": str(record)})
    from verl.trainer.ppo.ray_trainer import RayPPOTrainer

    logger = RayPPOTrainer().fit(
        [{"actor/grad_norm": 0.5, "note": "text"}, {"actor/grad_norm": float("nan")}, {"actor/grad_norm": 2}]
    )
    plugin.detach()

    lines = lines_of(record, 5)
    start, steps = lines[0], [line for line in lines if line["t"] == "step"]
    (end,) = [line for line in lines if line["t"] == "end"]
    assert start["t"] == "start"
    assert start["facts"]["trainer"] == "v0"
    assert start["facts"]["stages"] == ["actor_compute_log_prob", "ref_compute_log_prob", "actor_update"]
    assert [step["step"] for step in steps] == [1, 2, 3]
    assert steps[0]["values"] == {"actor/grad_norm": 0.5}
    assert steps[0]["unreadable"] == ["note"]
    assert steps[1]["values"]["actor/grad_norm"] != steps[1]["values"]["actor/grad_norm"]
    assert end == {"t": "end", "at": end["at"], "finished": True}
    assert [seen[0] for seen in logger.seen] == [1, 2, 3], "the run's own logging must go on as before"


def test_the_trainers_own_profiling_calls_are_passed_on_unchanged(fake_verl, tmp_path):
    plugin = Plugin({"SENTINEL_RECORD": str(tmp_path / "ref.jsonl")})
    from verl.trainer.ppo.ray_trainer import RayPPOTrainer

    trainer = RayPPOTrainer()
    trainer.fit([{"a": 1.0}, {"a": 2.0}])
    plugin.detach()

    assert trainer.calls == [("start", 1, False), ("stop", 1, False), ("start", 2, False), ("stop", 2, False)]
    assert "_start_profiling" not in vars(trainer), "detaching leaves the trainer as it was"


def test_detaching_leaves_verl_as_it_was(fake_verl, tmp_path):
    plugin = Plugin({"SENTINEL_RECORD": str(tmp_path / "ref.jsonl")})
    from verl.utils import tracking

    assert hasattr(tracking.Tracking.log, "__wrapped__")
    plugin.detach()

    assert not hasattr(tracking.Tracking.log, "__wrapped__")
    assert plugin.finder not in sys.meta_path


def test_a_recording_that_cannot_be_written_does_not_disturb_training(fake_verl, tmp_path):
    (tmp_path / "file").write_text("in the way")
    plugin = Plugin({"SENTINEL_RECORD": str(tmp_path / "file" / "ref.jsonl")})
    from verl.trainer.ppo.ray_trainer import RayPPOTrainer

    logger = RayPPOTrainer().fit([{"a": 1.0}] * 3)
    plugin.detach()

    assert len(logger.seen) == 3


def test_a_caller_that_is_no_trainer_is_still_watched(fake_verl, tmp_path, caplog):
    record = tmp_path / "sft.jsonl"
    plugin = Plugin({"SENTINEL_RECORD": str(record)})
    from verl.utils.tracking import Tracking

    logger = Tracking()
    for step in range(1, 6):
        logger.log({"loss": 1.0 / step}, step)
    plugin.detach()

    lines = lines_of(record, 6)
    assert lines[0]["facts"]["capture"] is False
    assert [line["step"] for line in lines if line["t"] == "step"] == [1, 2, 3, 4, 5]
    assert sum("nothing can be captured" in r.getMessage() for r in caplog.records) == 1, "said once, not once a step"


def test_an_error_of_the_runs_own_logger_reaches_the_run(fake_verl, tmp_path):
    plugin = Plugin({"SENTINEL_RECORD": str(tmp_path / "r.jsonl")})
    from verl.utils.tracking import Tracking

    with pytest.raises(TypeError):
        Tracking().log(None, 1)
    plugin.detach()


def test_the_run_is_named_by_the_environment_or_by_the_settings_file(tmp_path):
    config = tmp_path / "sentinel.yaml"
    config.write_text("home: /x\nrun: 'qwen npu'  # a name\n")

    assert wanted({"SENTINEL_RUN": " a "}).run == "a"
    assert wanted({"SENTINEL_CONFIG": str(config)}).run == "qwen npu"
    assert wanted({"SENTINEL_CONFIG": str(config), "SENTINEL_RUN": "b"}).run == "b"
    assert wanted({}).anything is False


@pytest.mark.parametrize("content", [None, b"\xff\xfe\x00", b"home: /x\n"])
def test_a_settings_file_that_is_missing_broken_or_silent_names_no_run(tmp_path, content):
    config = tmp_path / "sentinel.yaml"
    if content is not None:
        config.write_bytes(content)

    assert wanted({"SENTINEL_CONFIG": str(config)}).run == ""


def test_an_order_file_is_a_list_or_an_object_with_orders(tmp_path):
    order = {
        "first_step": 2,
        "last_step": 2,
        "stages": ["actor_update"],
        "level": "L0",
        "ranks": "all",
        "why": "golden",
    }
    (tmp_path / "list.json").write_text(json.dumps([order]))
    (tmp_path / "plan.json").write_text(
        json.dumps({"incident": "r:1", "orders": [order, {**order, "first_step": 3, "last_step": 3}]})
    )

    assert [o.first_step for o in read_orders(str(tmp_path / "list.json"))] == [2]
    assert [o.first_step for o in read_orders(str(tmp_path / "plan.json"))] == [2, 3]


def test_an_order_file_that_cannot_be_read_is_said_and_the_run_goes_on(fake_verl, tmp_path, caplog):
    (tmp_path / "orders.json").write_text("[{]")
    plugin = Plugin({"SENTINEL_ORDERS": str(tmp_path / "orders.json"), "SENTINEL_RECORD": str(tmp_path / "r.jsonl")})
    from verl.trainer.ppo.ray_trainer import RayPPOTrainer

    RayPPOTrainer().fit([{"a": 1.0}])
    plugin.detach()

    assert any("is left out" in record.getMessage() for record in caplog.records)


def test_a_module_that_is_imported_later_is_found_and_one_that_was_imported_is_served_at_once(tmp_path, monkeypatch):
    (tmp_path / "sentinel_probe_target.py").write_text(textwrap.dedent("VALUE = 1\n"))
    monkeypatch.syspath_prepend(str(tmp_path))
    finder, seen = AfterImport(), []

    finder.watch("sentinel_probe_target", lambda module: seen.append(module.VALUE))
    assert seen == []
    import sentinel_probe_target  # noqa: F401

    assert seen == [1]
    finder.watch("sentinel_probe_target", lambda module: seen.append(module.VALUE + 1))
    assert seen == [1, 2]
    finder.remove()
    sys.modules.pop("sentinel_probe_target")
