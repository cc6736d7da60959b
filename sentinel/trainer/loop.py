# SPDX-License-Identifier: Apache-2.0
"""A training loop that is not verl's: one process, one model, steps that begin and end where the loop says.

The stage of such a step is its forward and backward pass; the optimizer's own work is not dumped. In a run of several
processes the first one is watched and dumped: its rows stand for the others'. Nothing here raises into the loop.
"""

from __future__ import annotations

import functools
import os
import platform
import socket
import sys
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from sentinel.trainer import reach
from sentinel.trainer.arming import STAGED, Span, Target
from sentinel.trainer.fuse import Fuse, log
from sentinel.trainer.link import DaemonLink, NoClusterError
from sentinel.trainer.recording import RecordingFile
from sentinel.trainer.session import Outlets, Session
from sentinel.trainer.wanted import Wanted, read_orders_of, wanted

STAGE = "actor_update"
_VERSIONS = ("torch", "transformers", "trl", "accelerate", "deepspeed", "torch_npu")


class ClusterLink(DaemonLink):
    """The way to the daemon for a process that has nothing to do with Ray otherwise: it joins the cluster of RAY_ADDRESS first.

    Never another one that may be running on this machine; and a few times only, for Ray prints lines of its own about each.
    """

    joins_left = 3

    def send(self, records: list[dict[str, Any]]) -> dict[str, Any]:
        """Deliver; on the background thread, like every word to Ray.

        Raises:
            NoClusterError: RAY_ADDRESS names none, or it could not be joined.
            Exception: whatever Ray raises.
        """
        import ray

        if not ray.is_initialized():
            self._join(ray)
        return super().send(records)

    def _join(self, ray: Any) -> None:
        address = os.environ.get("RAY_ADDRESS", "")
        if not address:
            raise NoClusterError("RAY_ADDRESS names no cluster (`auto`: the one of this machine)")
        if not self.joins_left:
            raise NoClusterError(f"the cluster at RAY_ADDRESS={address} could not be joined")
        self.joins_left -= 1
        ray.init(address=address, namespace="sentinel", log_to_driver=False, configure_logging=False)


class LoopWorker:
    """The process itself as `arming` and `reach` see a worker: one stage, whose span the loop itself marks."""

    def __init__(self, model: Any, stage: str, rank: int) -> None:
        self.rank = rank
        self.span = Span()
        self.__ray_call__ = reach.InThisProcess(self)
        setattr(self, STAGED, [Target(stage, self.span, "run", model)])


class Loop:
    """The watch over one loop. Does nothing unless a run is named, here or by SENTINEL_RUN, SENTINEL_RECORD or SENTINEL_ORDERS.

        watch = Loop(model, run="my-run")
        for step in range(1, steps + 1):
            with watch.step(step):
                loss = model(batch).loss
                loss.backward()
            optimizer.step()
            watch.log(step, {"loss": loss.item()})
        watch.close()

    Args:
        model: the torch module that is trained.
        run: name of the run; None: as the environment says.
        stage: what its steps are called in dumps and incidents.
        environment: instead of the process's own.
        facts: further facts for the daemon, such as the name of the loop.
    """

    def __init__(
        self,
        model: Any,
        run: str | None = None,
        *,
        stage: str = STAGE,
        environment: Mapping[str, str] | None = None,
        facts: Mapping[str, Any] | None = None,
    ) -> None:
        self._fuse = Fuse("loop")
        self.session: Session | None = None
        self.rank = 0
        self._worker: LoopWorker | None = None
        self._total = 0
        self._open_step: int | None = None
        make = functools.partial(self._make, model, run, stage, environment or os.environ, dict(facts or {}))
        self._fuse.run(make, None)

    def _make(
        self, model: Any, run: str | None, stage: str, environment: Mapping[str, str], facts: dict[str, Any]
    ) -> None:
        want = wanted({**environment, **({"SENTINEL_RUN": run} if run else {})})
        self.rank = int(environment.get("RANK", "0") or 0)
        if environment.get("SENTINEL_DISABLED", "") not in ("", "0") or not want.anything or self.rank:
            return
        self.session = _session(want)
        self._worker = LoopWorker(model, stage, self.rank)
        self.actor_rollout_wg = self  # reach finds a trainer's workers through its worker groups
        self._total = int(facts.get("total_steps") or 0)
        self.session.started(
            {
                "python": platform.python_version(),
                "host": socket.gethostname(),
                "pid": os.getpid(),
                "capture": True,
                "trainer": "loop",
                "stages": [stage],
                "ranks": 1,
                **{name: str(getattr(sys.modules.get(name), "__version__", "") or "") for name in _VERSIONS},
                **facts,
            },
            want.config,
        )

    @property
    def workers(self) -> list[LoopWorker]:
        """The process itself, as the only worker of its own group."""
        return [] if self._worker is None else [self._worker]

    # ------------------------------------------------------------------ the loop's thread

    @contextmanager
    def step(self, number: int) -> Iterator[None]:
        """Mark the forward and backward pass of step `number`, counted from 1."""
        self.begin(number)
        try:
            yield
        finally:
            self.end()

    def begin(self, number: int) -> None:
        """A step begins: what was ordered for it is dumped from here."""
        self._fuse.run(functools.partial(self._begin, number), None)

    def end(self) -> None:
        """Its forward and backward pass are over: the dump, if there was one, is closed. Once more does no harm."""
        self._fuse.run(self._end, None)

    def log(self, step: int, metrics: Mapping[str, Any]) -> None:
        """Report a step's metrics; values that are no numbers are said and left out."""
        if self.session is not None:
            self._fuse.run(functools.partial(self.session.step_logged, step, metrics), None)

    def close(self, *, finished: bool = True) -> None:
        """Say goodbye; waits at most a second."""
        self._fuse.run(functools.partial(self._close, finished), None)

    # ------------------------------------------------------------------ inside

    def _begin(self, number: int) -> None:
        session, worker = self.session, self._worker
        if session is None or worker is None:
            return
        self._end()
        self._open_step = number
        session.boundary(self, number)
        worker.span.begin()

    def _end(self) -> None:
        session, worker, number = self.session, self._worker, self._open_step
        if session is None or worker is None or number is None:
            return
        self._open_step = None
        worker.span.end()
        session.step_over(number)

    def _close(self, finished: bool) -> None:
        self._end()
        if self.session is not None:
            if finished:
                self.session.finished()
            self.session.close()


def _session(want: Wanted) -> Session:
    config = want.config or {}
    outlets = Outlets(
        daemon=ClusterLink(want.run, uuid.uuid4().hex, config.get("text"), config.get("path")) if want.run else None,
        recording=RecordingFile(os.path.abspath(want.record)) if want.record else None,
    )
    base = os.path.abspath(want.record or want.orders_file or os.path.join(os.path.expanduser("~"), ".sentinel", "run"))
    return Session(want.run or os.path.basename(base), outlets, f"{base}.dumps", read_orders_of(want))


class SentinelCallback:
    """The watch as a callback of Hugging Face's Trainer, of TRL's trainers, and of whatever calls the same methods.

        Trainer(..., callbacks=[SentinelCallback(run="my-run")])

    A step is what Trainer calls one: all micro-batches between two optimizer steps. Metrics are those that Trainer logs, at
    `logging_steps`; with `logging_steps=1` and `logging_first_step=True` every step is judged, and one that went wrong is
    captured at the next.
    """

    def __init__(
        self, run: str | None = None, *, stage: str = STAGE, environment: Mapping[str, str] | None = None
    ) -> None:
        self._fuse = Fuse("callback")
        self._make: Callable[[Any, dict[str, Any]], Loop] = lambda model, facts: Loop(
            model, run, stage=stage, environment=environment, facts=facts
        )
        self.loop: Loop | None = None

    def __getattr__(self, name: str) -> Any:
        """Every other event of a trainer: nothing to do."""
        if name.startswith("on_"):
            return _nothing
        raise AttributeError(name)

    def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:  # noqa: ARG002
        """Begin to watch the model that is trained."""
        facts = {
            "trainer": "hf",
            "model": str(getattr(getattr(model, "config", None), "_name_or_path", "") or ""),
            "total_steps": int(getattr(state, "max_steps", 0) or 0),
        }
        self.loop = self._fuse.run(functools.partial(self._make, model, facts), None)

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:  # noqa: ARG002
        """A step begins; `global_step` still counts those that are over."""
        if self.loop is not None:
            self.loop.begin(int(state.global_step) + 1)

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **_: Any) -> None:  # noqa: ARG002
        """The last backward pass is over."""
        if self.loop is not None:
            self.loop.end()

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:  # noqa: ARG002
        """For trainers that do not say when the optimizer begins."""
        if self.loop is not None:
            self.loop.end()

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:  # noqa: ARG002
        """Metrics of the newest step; the summary at the end of training is none."""
        if self.loop is not None and logs and "train_runtime" not in logs:
            self.loop.log(int(state.global_step), logs)

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:  # noqa: ARG002
        """Say goodbye."""
        if self.loop is not None:
            self.loop.close()
            self.loop = None


def _nothing(*_: Any, **__: Any) -> None:
    log.debug("Sentinel: an event without work.")
