# SPDX-License-Identifier: Apache-2.0
"""The tables across two kinds of hardware say what the runs left, and the measurements measure."""

import json
import random
import sys
from pathlib import Path

import pytest

pytest.importorskip("psutil")
pytest.importorskip("wrapt", reason="the patches of the benchmarks are wrapt's; the extra `verl` brings it")

from bench import chaos_plugin
from bench.hardware import calibration, overhead, page, planted, seeds, toggle
from sentinel.storage.bundle import open_bundle

ROOT = Path(__file__).parents[2]


def incident(**more):
    receipt = {"first_step": 5, "bytes": 10, "seconds": 1.0}
    first = {"stage": "actor_update", "module": "model.norm"}
    told = {"kind": "drift", "opened_at_step": 4, "severity": "critical", "stage": "actor_update", "because": "b"}
    return told | {"receipt": receipt, "triage": {"first": first}} | more


def result(*incidents, stage="actor_update", module="model.norm", also=()):
    return {
        "name": "x", "bundle": "b", "stage": stage, "also": list(also), "module": module, "step": 4, "what": "w",
        "incidents": list(incidents), "replayed": True, "steps": 8, "step_seconds": 1.0,
    }  # fmt: skip


def test_a_finding_is_right_only_where_stage_and_module_are():
    right = page.judged(result(incident()))
    assert (right["stage_right"], right["module_right"], right["next_step"], right["late"]) == (True, True, True, 0)

    wrong = page.judged(result(incident(), stage="compute_values", module="score"))
    assert (wrong["stage_right"], wrong["module_right"]) == (False, False)
    assert not page.judged(result())["stage_right"]
    assert "**nothing**" in page.planted_table([result()])
    assert page.planted_table([]) == page.NONE


def test_a_dump_at_a_later_step_is_told_as_such():
    late = incident(receipt={"first_step": 6, "bytes": 10, "seconds": 1.0})

    assert page.judged(result(late))["next_step"] is False


def test_a_table_goes_between_its_marks_and_nowhere_else(tmp_path):
    path = tmp_path / "page.md"
    path.write_text("a\n<!-- made: t -->\nold\n<!-- end: t -->\nb\n")

    page.put(path, "t", "new \\1")

    assert path.read_text() == "a\n<!-- made: t -->\nnew \\1\n<!-- end: t -->\nb\n"
    with pytest.raises(ValueError, match="marks of u"):
        page.put(path, "u", "x")


def test_the_pages_hold_what_the_runs_left():
    text = (ROOT / "docs" / "hardware.md").read_text()

    assert page.planted_table(page.results()) in text
    assert page.calibration_table(calibration.table()) in text
    assert page.noise_table() in text


def test_a_healthy_seed_of_the_gpu_raises_no_alarm_among_the_others():
    runs = seeds.open_bundle(calibration.BUNDLES["tiny-grpo-fp32"]).reference().runs
    known = [run for run in runs if not run.twin]

    assert seeds.judge(known[1], [known[0], *known[2:]])["alarms"] == []


def steps(factor, phase, rng, texts):
    """Times of a toggled run whose watched steps take so many times as long, each step by the length of its text."""
    clock, rows = 0.0, []
    for step, length in enumerate(texts, start=1):
        on = toggle.watched(step, phase)
        rows.append({"step": step, "at": clock, "on": on, "inside": 0.001 * on})
        clock += length * rng.gauss(1.0 + 0.2 * phase, 0.02) * (factor if on else 1.0)
    return rows


@pytest.mark.parametrize("factor", [1.0, 1.03])
def test_the_ratio_of_step_times_is_found_again_whatever_the_texts_and_the_pace_of_a_run(factor):
    rng = random.Random(3)
    texts = [rng.uniform(0.5, 2.0) for _ in range(300)]
    first, second = (overhead.intervals(steps(factor, phase, rng, texts)) for phase in (0, 1))

    for pair in ((first, second), (second, first)):
        value, low, high = overhead.ratio(overhead.effects(*pair))

        assert low < factor < high
        assert abs(value - factor) < 0.005
        assert high - low < 0.02


def test_two_toggled_runs_watch_every_counted_step_once():
    for step in range(toggle.FIRST, toggle.FIRST + 20):
        assert toggle.watched(step, 0) != toggle.watched(step, 1)


def test_planned_faults_cover_every_stage_and_have_names_of_their_own():
    stages = {plan.stage for plan in planted.PLANNED}

    assert stages >= {
        "data", "config", "rollout", "compute_rm_score", "actor_compute_log_prob", "ref_compute_log_prob", "compute_values",
        "advantage", "critic_update", "actor_update",
    }  # fmt: skip
    names = [plan.name for plan in (*planted.PLANNED, *planted.HEALTHY)]
    assert len(names) == len(set(names)) >= 12


def test_replies_are_spoilt_in_every_way_and_stay_obeyable_where_they_hold_an_order():
    kinds = {chaos_plugin.spoilt({"orders": []}, step)[0] for step in range(3, 16)}

    assert len(kinds) == 13
    assert chaos_plugin.spoilt({"orders": []}, 13)[1]["orders"][0]["first_step"] == 14


@pytest.mark.torch
def test_the_packed_model_comes_back_bit_for_bit(tmp_path, monkeypatch):
    pytest.importorskip("torch")
    numpy = pytest.importorskip("numpy")
    monkeypatch.syspath_prepend(str(ROOT / "deploy" / "gpu_baseline"))
    import model

    weights = {"a": numpy.random.default_rng(0).normal(size=(64, 33)).astype("f4"), "b": numpy.zeros(5, "f4")}
    exact = {name: model.rounded(*model.to_grid(value)) for name, value in weights.items()}
    (tmp_path / "from" / "model").mkdir(parents=True)
    (tmp_path / "from" / "train.parquet").write_bytes(b"x")
    model.write(tmp_path / "from" / "model", exact)

    model.pack(tmp_path / "from", tmp_path / "packed")
    model.unpack(tmp_path / "packed", tmp_path / "to")

    back = model.read(tmp_path / "to" / "model")
    assert all(numpy.array_equal(back[name], exact[name]) for name in exact)
    assert (tmp_path / "to" / "train.parquet").read_bytes() == b"x"
    assert numpy.abs(exact["a"] - weights["a"]).max() < 0.25
    sys.modules.pop("model", None)


def test_golden_dumps_are_ordered_of_every_stage_a_recipe_has(monkeypatch):
    pytest.importorskip("torch")
    monkeypatch.syspath_prepend(str(ROOT / "deploy" / "gpu_baseline"))
    import record

    orders = record.golden_orders(record.Case(name="x", critic=True, golden=4))

    assert [order["first_step"] for order in orders] == [2, 3, 4]
    assert {"compute_values", "critic_update"} <= set(orders[0]["stages"])
    for name in ("record", "cases", "model"):
        sys.modules.pop(name, None)


def test_the_example_and_the_tables_are_of_the_same_bundles():
    manifest = json.loads((ROOT / "bench" / "hardware" / "data" / "calibration.json").read_text())

    assert {row["recipe"] for row in manifest} <= set(calibration.BUNDLES)


@pytest.mark.parametrize(
    "path", sorted((ROOT / "bench" / "hardware" / "results").glob("healthy-*.jsonl")), ids=lambda p: p.stem
)
def test_a_healthy_run_on_a_cpu_is_silent_beside_the_h200(path):
    """The real verl runs that were watched live, judged once more."""
    told = json.loads(path.with_suffix(".json").read_text())
    runs = open_bundle(ROOT / "examples" / "h200" / f"{told['bundle']}.sentinel").reference().runs
    found = seeds.judge(seeds.from_file(path), runs)

    assert found["regime"] == ("replayed" if told["replayed"] else "free")
    assert found["alarms"] == []
    assert found["steps"] == told["steps"]
