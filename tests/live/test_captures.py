# SPDX-License-Identifier: Apache-2.0
"""Captures of a real verl run with a critic on two ranks: the step itself from kept inputs, the next one, and nothing else."""

import json

import pytest

pytest.importorskip("verl", reason="a real verl run needs verl")
pytest.importorskip("msprobe", reason="captures are msprobe's")

from sentinel.demo.cluster import private_cluster
from sentinel.demo.kit.faults import Fault
from sentinel.demo.runs import RunSettings, launch

pytestmark = [pytest.mark.live, pytest.mark.timeout(600)]
REF, MODULE = "ref_compute_log_prob", "model.layers.1.mlp.gate_proj"


def test_a_stage_without_side_effects_is_run_again_on_the_inputs_of_the_step_that_went_wrong(tmp_path, assets):
    """NaN in the reference at step 4: step 4 itself is dumped from kept inputs, with unchanged weights, and step 5 as ever."""
    config = tmp_path / "sentinel.yaml"
    document = {
        "home": str(tmp_path / "home"),
        "http": {"port": 0},
        "trainer": {"flight_recorder_bytes": 1 << 28},
        "engine": {"capture": {"steps": 1}},
    }
    config.write_text(json.dumps(document))
    fault = Fault(stage=REF, module=MODULE, kind="scale", size=float("nan"), step=4)
    environment = {"SENTINEL_RUN": "again", "SENTINEL_CONFIG": str(config)}
    with private_cluster(accelerators=2) as cluster:
        settings = RunSettings(
            name="again", steps=7, trainer="v1", ranks=2, critic=True, fault=fault, environment=environment
        )
        launch(settings, tmp_path / "run", assets, cluster, deadline_seconds=400)

    incident = json.loads(next((tmp_path / "home").glob("incidents/*/incident.json")).read_text())
    assert (incident["kind"], incident["opened_at_step"], incident["stage"]) == ("non_finite", 4, REF)
    notes = " ".join(incident["notes"])
    assert "run again before step 5 on the kept inputs of step 4" in notes
    assert f"{REF}: its weights are those of step 4" in notes
    dumps = sorted((tmp_path / "home" / "dumps").rglob("step_*/*/step0/rank*/dump.json"))
    found = {(path.parts[-5], path.parts[-4], path.parts[-2]) for path in dumps}
    assert {("step_4", REF, "rank0"), ("step_4", REF, "rank1")} <= found
    assert {stage for _, stage, _ in found} == {REF}
    context = json.loads((dumps[0].parents[3] / "context.json").read_text())
    assert context["rows"][0]["prompt"]
    assert context["trainer"]["topology"]["strategy"] == "fsdp2"
    assert {worker["rank"] for worker in context["workers"]} == {0, 1}
