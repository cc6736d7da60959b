# SPDX-License-Identifier: Apache-2.0
"""The trainer side of verl: where metrics pass as raw floats, and where a step begins and ends.

Run with verl 0.9.1 (V0 and V1) and 0.9.0 (V1). `Tracking.log` receives the raw values of a step. Its caller is the
trainer, whichever class it is (V1 of 0.8 lives in `__main__`); `_start_profiling` and `_stop_profiling` are called
once in every step, the first one after the previous step's `log`. They are wrapped on the instance.
"""

from __future__ import annotations

import functools
import os
import platform
import socket
import sys
from types import FrameType, ModuleType
from typing import Any

from sentinel.trainer import golden, reach
from sentinel.trainer.fuse import Fuse, attempt, log
from sentinel.trainer.session import Session

TESTED_VERL = ("0.9.0", "0.9.1")
_LOOKS_FOR_TRAINER = 4
_FRAMES_UP = 8
_VERSIONS = ("verl", "torch", "transformers", "ray", "tensordict", "torch_npu", "vllm")


class Driver:
    """Hooks `Tracking` and, through it, the trainer that uses it.

    Args:
        session: where everything is reported to.
        record_schedule: dump the default golden schedule (a recording run without orders of its own).
        config: `{"path", "text"}` of the run's sentinel.yaml, or None.
    """

    def __init__(self, session: Session, *, record_schedule: bool, config: dict[str, str] | None) -> None:
        self.session = session
        self._record_schedule = record_schedule
        self._config = config
        self._finding = Fuse("verl hooks")
        self._trainer: Any = None
        self._looks = 0
        self._undo: list[tuple[Any, str, Any]] = []

    # ------------------------------------------------------------------ hooks

    def hook_tracking(self, module: ModuleType) -> None:
        """Wrap the constructor and `log` of `verl.utils.tracking.Tracking`."""
        tracking = module.Tracking
        made, original = tracking.__init__, tracking.log
        driver = self

        @functools.wraps(made)
        def make_and_look(instance: Any, *args: Any, **kwargs: Any) -> None:
            made(instance, *args, **kwargs)
            # Before the first step, so that the first step can be captured already.
            driver.session.metrics.run(driver.look_for_trainer, None)

        @functools.wraps(original)
        def log_and_report(instance: Any, *args: Any, **kwargs: Any) -> Any:
            driver.session.metrics.run(functools.partial(driver.logged, args, kwargs), None)
            return original(instance, *args, **kwargs)

        for name, wrapper, before in (("__init__", make_and_look, made), ("log", log_and_report, original)):
            setattr(tracking, name, wrapper)
            self._undo.append((tracking, name, before))

    def unhook(self) -> None:
        """Put `Tracking` and the trainer back as they were."""
        for owner, name, original in reversed(self._undo):
            if original is None:
                attempt(functools.partial(delattr, owner, name))
            else:
                setattr(owner, name, original)
        self._undo.clear()

    def logged(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """One call of `Tracking.log(data, step, backend=None)`."""
        data = args[0] if args else kwargs["data"]
        step = int(args[1] if len(args) > 1 else kwargs["step"])
        self.look_for_trainer()
        self.session.step_logged(step, data)
        if step >= getattr(self._trainer, "total_training_steps", step + 1):
            self.session.finished()

    # ------------------------------------------------------------------ the trainer

    def look_for_trainer(self) -> None:
        """Find the trainer among the callers; a few times, then never again."""
        if self._trainer is None and self._looks < _LOOKS_FOR_TRAINER:
            self._looks += 1
            self._finding.run(self._find_trainer, None)

    def _find_trainer(self) -> None:
        trainer = _caller_that_trains(sys._getframe(1))
        if trainer is not None:
            self._attach(trainer)
        elif self._looks == 2:
            # Not where the logger was made and not where the first step was logged: no trainer that is known.
            self.session.started(self._facts(None), self._config)
        if trainer is None and self._looks == _LOOKS_FOR_TRAINER:
            log.warning(
                "Sentinel: no trainer of a known verl version (%s) calls Tracking.log here; "
                "metrics are watched, nothing can be captured.",
                ", ".join(TESTED_VERL),
            )

    def _attach(self, trainer: Any) -> None:
        self._trainer = trainer
        start, stop = trainer._start_profiling, trainer._stop_profiling
        session = self.session

        @functools.wraps(start)
        def start_profiling(*args: Any, **kwargs: Any) -> Any:
            result = start(*args, **kwargs)
            if not _profiles_itself(trainer):
                session.boundary(trainer, int(trainer.global_steps))
            return result

        @functools.wraps(stop)
        def stop_profiling(*args: Any, **kwargs: Any) -> Any:
            session.step_over(int(trainer.global_steps))
            return stop(*args, **kwargs)

        for name, wrapper in (("_start_profiling", start_profiling), ("_stop_profiling", stop_profiling)):
            self._undo.append((trainer, name, vars(trainer).get(name)))
            setattr(trainer, name, wrapper)
        session.started(self._facts(trainer), self._config)
        session.describe(trainer)
        if self._record_schedule:
            session.schedule(golden.schedule(reach.stages_of(trainer)))

    def _facts(self, trainer: Any) -> dict[str, Any]:
        facts: dict[str, Any] = {
            "python": platform.python_version(),
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "capture": trainer is not None,
        }
        for name in _VERSIONS:
            facts[name] = str(getattr(sys.modules.get(name), "__version__", "") or "")
        if trainer is not None:
            kind = type(trainer)
            facts["trainer"] = "v1" if ".v1." in kind.__module__ or kind.__module__ == "__main__" else "v0"
            facts["trainer_class"] = f"{kind.__module__}.{kind.__qualname__}"
            facts["stages"] = reach.stages_of(trainer)
            facts["ranks"] = len(reach.workers_of(trainer))
            facts["total_steps"] = int(getattr(trainer, "total_training_steps", 0) or 0)
            attempt(lambda: facts.update(_from_config(trainer.config)))
            attempt(lambda: facts.update(_around_captures(trainer.config)))
        return facts


def _from_config(config: Any) -> dict[str, Any]:
    trainer = config.trainer
    return {
        "project": str(trainer.project_name),
        "experiment": str(trainer.experiment_name),
        "rollout_data_dir": str(trainer.get("rollout_data_dir", None) or ""),
        "model": str(config.actor_rollout_ref.model.path),
    }


def _around_captures(config: Any) -> dict[str, Any]:
    """What stands beside a dump, and what a golden made to order starts from."""
    trainer, worker = config.trainer, config.actor_rollout_ref
    return {
        "checkpoint_dir": os.path.abspath(str(trainer.get("default_local_dir", "") or "")),
        "save_freq": int(trainer.get("save_freq", -1) or -1),
        "replay_dir": _replay_dir(config),
        "topology": {
            "nodes": int(trainer.get("nnodes", 0) or 0),
            "devices_a_node": int(trainer.get("n_gpus_per_node", 0) or 0),
            "device": str(trainer.get("device", "") or ""),
            "strategy": str(worker.actor.get("strategy", "") or ""),
            "rollout": str(worker.rollout.get("name", "") or ""),
        },
    }


def _replay_dir(config: Any) -> str:
    """The folder of verl's rollout recording, where the run writes or replays one."""
    skip = config.get("skip", None) or {}
    for section in ("rollout_tq", "rollout", "async_rollout"):
        about = skip.get(section, None) or {}
        if about.get("enable", False) and about.get("dump_dir", None):
            return os.path.abspath(str(about["dump_dir"]))
    return ""


def _caller_that_trains(frame: FrameType | None) -> Any:
    """The nearest `self` up the stack that looks like a verl PPO trainer."""
    for _ in range(_FRAMES_UP):
        if frame is None:
            return None
        candidate = frame.f_locals.get("self")
        if all(hasattr(candidate, name) for name in ("_start_profiling", "_stop_profiling", "actor_rollout_wg")):
            return candidate
        frame = frame.f_back
    return None


def _profiles_itself(trainer: Any) -> bool:
    """Whether the run's own precision debugger dumps this step: Sentinel's capture then waits for the next one."""
    found: list[bool] = []

    def look() -> None:
        profiler = trainer.config.global_profiler
        steps = profiler.steps or ()
        found.append(profiler.tool == "precision_debugger" and trainer.global_steps in steps)

    attempt(look)
    return found == [True]
