# SPDX-License-Identifier: Apache-2.0
"""What goes wrong inside a training run's own processes, and what it costs: loaded by VERL_USE_EXTERNAL_MODULES.

In the trainer: replies of the daemon are spoilt, one kind after the other, and every call into Sentinel is timed.
In the workers: msprobe raises in its constructor, start, forward hook, backward hook or stop, one place a capture.
Each injection that really took place is a line in a file of the folder CHAOS_FOLDER.
"""

from __future__ import annotations

import functools
import gc
import json
import os
import time
from pathlib import Path

import wrapt

STAGES = ["actor_compute_log_prob", "ref_compute_log_prob", "actor_update"]
PLACES = ("constructor", "start", "forward", "backward", "stop", "")
"""Where msprobe fails, capture by capture; the last is a capture that works."""
MALFORMED = ("reply that is no mapping", "reply of nothing", "settings of another kind")
COLLECTORS = {
    "forward": ("forward_input_data_collect", "forward_output_data_collect", "forward_data_collect"),
    "backward": ("backward_data_collect", "backward_input_data_collect", "backward_output_data_collect"),
}


def note(kind: str, **more) -> None:
    """Write down that something was injected."""
    line = json.dumps({"kind": kind, "at": time.time(), **more}) + "\n"
    with (Path(os.environ["CHAOS_FOLDER"]) / f"injected-{os.getpid()}.jsonl").open("a", encoding="utf-8") as file:
        file.write(line)


# ---------------------------------------------------------------------- the trainer


def order(step: int, **more) -> dict:
    """An order that can be obeyed at `step`."""
    made = {"id": f"forged-{step}", "first_step": step, "last_step": step, "stages": STAGES, "level": "L0", "why": "x"}
    return made | more


def spoilt(reply, step: int):
    """Replies that a broken or hostile daemon might give: (kind, reply)."""
    due = order(step + 1)
    orders = list((reply or {}).get("orders") or [])
    kinds = (
        ("order forged", reply | {"orders": [*orders, due]}),
        ("order duplicated", reply | {"orders": [*orders, due, due, due]}),
        ("order of the past", reply | {"orders": [order(step - 5), due]}),
        ("order with unknown stages", reply | {"orders": [order(step + 1, id="u", stages=["no_such_stage"]), due]}),
        ("orders that are none", reply | {"orders": [None, 7, "x", {}, {"stages": 1}, [1], order("?"), due]}),
        ("a thousand orders", reply | {"orders": [order(step + 1, id=f"m{step}-{n}") for n in range(1000)]}),
        ("order of all levels", reply | {"orders": [due, order(step + 1, id="l1", level="L1"), order(step + 1, id="q", level="??")]}),
        ("reply that is no mapping", [step]),
        ("reply of nothing", None),
        ("settings of another kind", reply | {"settings": {"wait_seconds": "soon", "dump_root": 5}, "orders": [due]}),
        ("cancelled unknown", reply | {"cancelled": [None, 5, "nobody", due["id"]], "orders": [due]}),
        ("reply late", "late"),
        ("report fails", "raises"),
    )  # fmt: skip
    kind, made = kinds[step % len(kinds)]
    if kind in MALFORMED and step > len(kinds) + 3:
        # Five of these and the trainer's side takes no more orders: then nothing else of a capture would be tried.
        return kinds[0]
    return kind, made


def in_trainer(module) -> None:
    """Spoil the reply to every step."""
    send = module.DaemonLink.send

    @functools.wraps(send)
    def spoil(self, records):
        steps = [record["step"] for record in records if record.get("t") == "step"]
        if not steps or steps[-1] < 3:
            return send(self, records)
        if steps[-1] % 13 == 12:
            note("report fails", step=steps[-1])
            raise OSError("chaos: the connection is gone")
        kind, changed = spoilt(send(self, records), steps[-1])
        note(kind, step=steps[-1])
        if changed == "late":
            time.sleep(0.4)
            changed = {}
        return changed

    module.DaemonLink.send = spoil


class Times:
    """Seconds of the trainer's thread inside Sentinel, call by call."""

    def __init__(self) -> None:
        self.rows: list[tuple[str, float]] = []
        self._collecting = 0.0

    def timed(self, owner, name: str) -> None:
        """Time a method."""
        method = getattr(owner, name)

        @functools.wraps(method)
        def call(*args, **kwargs):
            began = time.perf_counter()
            try:
                return method(*args, **kwargs)
            finally:
                self.rows.append((name, time.perf_counter() - began))

        setattr(owner, name, call)

    def collected(self, phase: str, info: dict) -> None:
        """Time the interpreter's own full collections: they hold every thread, a wait's too."""
        if info["generation"] < 2:
            return
        if phase == "start":
            self._collecting = time.perf_counter()
        else:
            self.rows.append(("gc", time.perf_counter() - self._collecting))

    def write(self) -> None:
        """Write all of them."""
        path = Path(os.environ["CHAOS_FOLDER"]) / "times.json"
        path.write_text(json.dumps(self.rows), encoding="utf-8")


def in_session(module) -> None:
    """Time the calls that a trainer makes, and the waits within them."""
    times = Times()
    for name in ("step_logged", "boundary", "step_over"):
        times.timed(module.Session, name)
    times.timed(module.Emitter, "wait")
    gc.callbacks.append(times.collected)
    finished = module.Session.finished

    def finish(self):
        result = finished(self)
        times.write()
        return result

    module.Session.finished = finish


# ---------------------------------------------------------------------- the workers


class Failing:
    """msprobe that fails in one place a capture."""

    def __init__(self) -> None:
        self.captures = 0
        self.place = ""

    def constructed(self) -> None:
        """Another capture: another place."""
        self.place = PLACES[self.captures % len(PLACES)]
        self.captures += 1
        self.at("constructor")

    def at(self, place: str) -> None:
        """Raise, once a capture, where it is this place's turn."""
        if place == self.place:
            self.place = ""
            note(f"msprobe fails in {place}")
            raise RuntimeError(f"chaos: msprobe fails in {place}")


FAILING = Failing()


def in_debugger(module) -> None:
    """Make msprobe's debugger fail."""
    debugger = module.PrecisionDebugger
    make, start, stop = debugger.__init__, debugger.start, debugger.stop

    def init(self, *args, **kwargs):
        FAILING.constructed()
        return make(self, *args, **kwargs)

    def started(*args, **kwargs):
        FAILING.at("start")
        return start(*args, **kwargs)

    def stopped(*args, **kwargs):
        FAILING.at("stop")
        return stop(*args, **kwargs)

    debugger.__init__ = init
    debugger.start, debugger.stop = staticmethod(started), staticmethod(stopped)


def in_collector(module) -> None:
    """Make msprobe's hooks fail."""
    for place, names in COLLECTORS.items():
        for name in names:
            method = getattr(module.DataCollector, name)

            def failing(self, *args, _method=method, _place=place, **kwargs):
                FAILING.at(_place)
                return _method(self, *args, **kwargs)

            setattr(module.DataCollector, name, functools.wraps(method)(failing))


IN_MSPROBE = (
    ("msprobe.pytorch.dump.debugger.precision_debugger", in_debugger),
    ("msprobe.core.dump.data_dump.data_collector", in_collector),
)


def install_in_msprobe() -> None:
    """Make msprobe fail in this process, capture by capture in another place."""
    for name, patch in IN_MSPROBE:
        wrapt.register_post_import_hook(patch, name)


if os.environ.get("CHAOS_FOLDER") and os.environ.get("VERL_USE_EXTERNAL_MODULES"):
    for name, patch in (("sentinel.trainer.link", in_trainer), ("sentinel.trainer.session", in_session), *IN_MSPROBE):
        wrapt.register_post_import_hook(patch, name)
