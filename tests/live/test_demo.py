# SPDX-License-Identifier: Apache-2.0
"""The demo itself: NaN gradients, three drawn faults, a replay that does not happen and scrambled weights are found; memory is bounded."""

import shutil
import threading
from pathlib import Path

import psutil
import pytest

from sentinel.demo.assets import module_paths
from sentinel.demo.course import play
from sentinel.demo.places import claim
from sentinel.demo.plans import draw, to_text
from sentinel.demo.scenarios import STEPS, asked, extra, standard

pytest.importorskip("verl")
pytest.importorskip("msprobe")
pytestmark = pytest.mark.live

GIGABYTE = 1e9
SEED = 0


class Listener:
    """An audience that only remembers."""

    def __init__(self):
        self.phases = []

    def phase(self, name, doing, done, of):
        self.phases.append((name, doing, done, of))

    def command(self, words):
        self.phases.append(("command", " ".join(words), 0, 0))

    def ended(self, name, seconds, remark):
        self.phases.append((name, remark, 0, 0))

    def outcome(self, outcome):
        print(outcome.scenario.name, outcome.ok, outcome.why)


class PeakMemory:
    """The largest sum of proportional set sizes of this process's descendants, sampled every two seconds."""

    def __init__(self):
        self.bytes = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        self._thread.join()

    def _sample(self):
        while not self._stop.wait(2.0):
            total = 0
            for process in psutil.Process().children(recursive=True):
                try:
                    total += process.memory_full_info().pss
                except psutil.Error:
                    continue
            self.bytes = max(self.bytes, total)


@pytest.mark.timeout(1500)
def test_what_is_planted_is_found_and_the_healthy_run_is_silent(tmp_path, assets):
    drawn = draw(SEED, 3, modules=module_paths(), steps=STEPS)
    # The standard numeric fault is left out: three drawn ones stand for it, and a verl run costs most of a minute.
    scenarios = (*(s for s in standard() if s.name != "run-b"), *asked(drawn)[1:], *extra())
    listener = Listener()
    places = claim(tmp_path / "demo")
    shutil.copytree(assets.folder, places.assets)  # what `sentinel demo` would prepare; tests/demo/test_assets.py does

    with PeakMemory() as memory:
        finished = play(places, scenarios, listener)

    print(f"{len(scenarios)} watched runs in {finished.seconds:.0f} s, peak {memory.bytes / GIGABYTE:.1f} GB")
    wrong = [
        f"{o.scenario.name} ({o.scenario.fault and to_text(o.scenario.fault)}): {o.why}"
        for o in finished.outcomes
        if not o.ok
    ]
    assert not wrong
    assert finished.ok
    assert memory.bytes < 6 * GIGABYTE
    for outcome in finished.outcomes:
        if outcome.scenario.fault is not None:
            assert "<svg" in Path(outcome.report).read_text()
        if outcome.scenario.fault is not None and outcome.scenario.fault.kind != "nan_grad":
            # The golden dump of the step after the fault was there and comparable.
            assert outcome.golden.startswith("same step, same rows")
    no_replay = next(o for o in finished.outcomes if o.scenario.name == "run-e").incidents[0]
    assert "A replay was asked for (skip.rollout.enable=True) and did not happen" in no_replay["because"]
    trained = {done for name, doing, done, _ in listener.phases if name == "run-c" and doing == "training"}
    assert len(trained) > 2, "progress was not shown step by step"
