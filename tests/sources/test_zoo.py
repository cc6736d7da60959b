# SPDX-License-Identifier: Apache-2.0
"""The format zoo: every input of tests/data/formats is read as its expected file says, whole and while it grows."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path

import pytest

from sentinel.errors import UnreadableLog
from sentinel.sources import Follower, read_file

ZOO = Path(__file__).parent.parent / "data" / "formats"
# Rollout files hold no metrics: tests/cli/test_rollout.py reads those.
CASES = sorted(p for p in ZOO.glob("*/*.expected.json") if p.parent.name != "verl_rollout")
CODES = {
    line.split("`")[1]
    for line in (ZOO / "README.md").read_text().partition("## Warning codes")[2].splitlines()
    if line.startswith("| `")
}


def input_of(expected: Path) -> Path:
    stem = expected.name.removesuffix(".expected.json")
    (found,) = [p for p in expected.parent.iterdir() if p.name.startswith(f"{stem}.") and p != expected]
    return found


def steps_of(expected: dict) -> dict:
    return {
        (step.get("attempt", 1), step["step"], step["kind"]): {
            key: float(value) for key, value in step["metrics"].items() if value is not None
        }
        for step in expected["steps"]
    }


def same(a: float, b: float, relative: float) -> bool:
    if not math.isfinite(a):
        # null lost which of the three it was
        return not math.isfinite(b)
    return math.isclose(a, b, rel_tol=relative, abs_tol=1e-300)


def agree(expected: dict, got: dict, relative: float = 1e-9) -> None:
    assert got.keys() == expected.keys()
    for place, metrics in expected.items():
        assert got[place].keys() == metrics.keys(), place
        wrong = {
            key: (got[place][key], value)
            for key, value in metrics.items()
            if not same(value, got[place][key], relative)
        }
        assert not wrong, place


def test_the_zoo_is_whole():
    assert len(CASES) == 75
    assert len(CODES) == 26


@pytest.mark.parametrize(
    "case", CASES, ids=lambda case: f"{case.parent.name}/{case.name.removesuffix('.expected.json')}"
)
def test_a_case_is_read_as_expected(case):
    expected = json.loads(case.read_text())
    if expected.get("error"):
        with pytest.raises(UnreadableLog) as refused:
            read_file(input_of(case))
        assert refused.value.code == expected["error"]
        assert "\n" not in str(refused.value)
        return
    result = read_file(input_of(case))

    assert result.format == expected["format"]
    got = {(r.attempt, r.step, r.kind): dict(r.metrics) for r in result.steps}
    agree(steps_of(expected), got, 1e-6 if case.parent.name == "tensorboard" else 1e-9)
    assert set(result.warnings) & CODES == set(expected["warnings"])
    if "summary" in expected:
        assert result.summary == pytest.approx(expected["summary"])
    assert [(r.attempt, r.step) for r in result.steps] == sorted((r.attempt, r.step) for r in result.steps)


READABLE = [case for case in CASES if not json.loads(case.read_text()).get("error")]


@pytest.mark.parametrize("size", [1, 7, 113])
@pytest.mark.parametrize("case", READABLE, ids=lambda case: case.name.removesuffix(".expected.json"))
def test_portions_of_any_size_make_the_same_steps(case, size):
    from sentinel.sources.files import result
    from sentinel.sources.formats import make_reader

    whole = read_file(input_of(case))
    reader = make_reader(whole.format)
    data = input_of(case).read_bytes()
    readings = [r for at in range(0, len(data), size) for r in reader.feed(data[at : at + size])]

    again = result(reader, readings + reader.finish())

    assert str(again.steps) == str(whole.steps)
    assert set(again.warnings) == set(whole.warnings)


@pytest.mark.parametrize("case", READABLE, ids=lambda case: case.name.removesuffix(".expected.json"))
def test_a_state_saved_at_any_place_goes_on_as_if_nothing_had_happened(case):
    from sentinel.sources.files import result
    from sentinel.sources.formats import make_reader

    whole = read_file(input_of(case))
    data = input_of(case).read_bytes()
    for cut in range(0, len(data), max(1, len(data) // 23)):
        first = make_reader(whole.format)
        readings = first.feed(data[:cut])
        if whole.format == "tensorboard":
            readings += first.settle()  # its state is taken between looks
        second = make_reader(whole.format)
        second.restore(json.loads(json.dumps(first.to_plain())))
        readings += second.feed(data[cut:])

        again = result(second, readings + second.finish())

        assert str(again.steps) == str(whole.steps)


@pytest.mark.parametrize("case", READABLE, ids=lambda case: case.name.removesuffix(".expected.json"))
def test_a_file_that_grows_in_pieces_under_a_follower_ends_as_if_read_whole(case, tmp_path):
    whole = read_file(input_of(case))
    data = input_of(case).read_bytes()
    rng = random.Random(case.name)
    log = tmp_path / input_of(case).name
    follower = Follower(log, format=whole.format)
    got: dict = {}

    def take(result):
        for reading in result.readings:
            got.setdefault((reading.attempt, reading.step), {}).update(reading.metrics)

    at = 0
    while at < len(data):
        size = rng.choice([1, 20, 300, 3000])
        with log.open("ab") as stream:
            stream.write(data[at : at + size])
        at += size
        take(follower.poll(1.0))
        if rng.random() < 0.3:
            follower.close()
            follower = Follower(log, state=json.loads(json.dumps(follower.to_plain())))
    take(follower.finish(2.0))
    follower.close()

    assert str({place: dict(sorted(got[place].items())) for place in sorted(got)}) == str(
        {(r.attempt, r.step): dict(sorted(r.metrics.items())) for r in whole.steps}
    )


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name.removesuffix(".expected.json"))
def test_a_damaged_file_is_read_or_refused_and_never_an_accident(case, tmp_path):
    data = input_of(case).read_bytes()
    rng = random.Random(case.name)
    path = tmp_path / "log"
    for _ in range(40):
        damaged = bytearray(data[: rng.randint(0, len(data))] if rng.random() < 0.5 else data)
        for _ in range(rng.randint(0, 4) if damaged else 0):
            damaged[rng.randrange(len(damaged))] = rng.choice(b"\x00\xff{}[]'\":,|\r\n\x1b 0-e/")
        path.write_bytes(damaged)
        refusal = None
        try:
            read_file(path)
        except UnreadableLog as error:
            refusal = error
        assert refusal is None or refusal.code in ("unknown_format", "empty_file", "unsupported_container")


FOLLOWS = [case for case in CASES if "follows" in json.loads(case.read_text())]


@pytest.mark.parametrize("case", FOLLOWS, ids=lambda case: case.name.removesuffix(".expected.json"))
@pytest.mark.parametrize("restarted", [False, True], ids=["one follower", "a restart between"])
def test_a_later_state_of_the_same_path_is_followed(case, restarted, tmp_path):
    expected = json.loads(case.read_text())
    before = case.parent / expected["follows"]["after"]
    log = tmp_path / before.name
    log.write_bytes(before.read_bytes())
    follower = Follower(log)
    got: dict = {}
    warned: set = set()

    def take(result):
        for reading in result.readings:
            got.setdefault((reading.attempt, reading.step, reading.kind), {}).update(reading.metrics)
        warned.update(warning.code for warning in result.warnings)

    take(follower.poll(1.0))
    if restarted:
        follower.close()
        follower = Follower(log, state=json.loads(json.dumps(follower.to_plain())))
    log.write_bytes(input_of(case).read_bytes())
    take(follower.poll(2.0))
    follower.close()

    want = steps_of(expected)
    if expected["follows"]["mode"] == "replaced":
        first = json.loads((before.with_name(before.name.replace(before.suffix, ".expected.json"))).read_text())
        want = steps_of(first) | {(2, step, kind): metrics for (_, step, kind), metrics in want.items()}
    agree(want, got)
    assert warned & CODES == set(expected["warnings"]) | set(expected["follows"]["warnings"])
