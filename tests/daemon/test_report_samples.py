# SPDX-License-Identifier: Apache-2.0
"""Rollout text of an incident beside its baseline's, from a bundle and from the run's folder."""

import json
from dataclasses import replace

from sentinel.daemon import report_files
from sentinel.daemon.report_files import Material
from sentinel.daemon.report_samples import samples
from sentinel.records import Finding, Incident
from sentinel.storage.bundle import write_bundle

INCIDENT = Incident(
    id="r:1", run="r", kind="collapse", state="open", opened_at_step=7, closed_at_step=None, severity="critical",
    stage="rollout", suspects=(), findings=(Finding("garbled", "rollout/text", 7, 0.4, None, "garbled", "rollout"),),
)  # fmt: skip


def text(folder, *answers):
    folder.mkdir()
    rows = [
        json.dumps({"input": f"q{i}", "output": answer, "score": 0.5, "step": 7}) for i, answer in enumerate(answers)
    ]
    (folder / "7.jsonl").write_text("\n".join(rows) + "\n")
    return folder


def test_answers_to_the_same_prompts_stand_side_by_side(tmp_path):
    golden = text(
        tmp_path / "golden", "The answer is four, as two and two are four.", "Paris is the capital of France."
    )
    bundle = tmp_path / "b"
    write_bundle(bundle, name="b", runs=[], rollouts=golden)
    folder = text(
        tmp_path / "run",
        "The answer is four, as two and two are four.",
        "\ufffd\ufffd\ufffd\ufffd\ufffd\ufffd\ufffd\ufffd",
    )

    first, second = samples(INCIDENT, str(folder), str(bundle))

    assert (first.label, first.golden_output) == ("garbled", "Paris is the capital of France.")
    assert second.output == second.golden_output


def test_where_no_text_is_involved_none_is_read(tmp_path):
    folder = text(tmp_path / "run", "x")
    other = replace(INCIDENT, stage="actor_update", findings=())

    assert samples(other, str(folder), None) == ()
    assert samples(INCIDENT, "", None) == ()
    assert samples(INCIDENT, str(tmp_path / "gone"), str(tmp_path / "gone")) == ()


def test_the_files_of_an_incident_hold_them_in_every_form(tmp_path):
    folder = text(tmp_path / "run", "# not a heading <script>")

    home = report_files.write(tmp_path, Material(INCIDENT, (), rollouts=str(folder)))

    assert json.loads((home / "incident.json").read_text())["samples"][0]["output"] == "# not a heading <script>"
    assert "\n    # not a heading <script>" in (home / "report.md").read_text()
    page = (home / "report.html").read_text()
    assert "# not a heading &lt;script&gt;" in page
    assert "<script" not in page
