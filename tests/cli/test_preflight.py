# SPDX-License-Identifier: Apache-2.0
"""The verbs `fingerprint` and `preflight`: documents, exit codes, refusals, mending."""

import json
from pprint import pformat

import pytest

from sentinel.cli import main
from sentinel.cli.baseline_making import agreed
from sentinel.core.checklist import CHECKS
from sentinel.daemon.alignment import load_rules
from tests.support.sides import changed, golden, target

TASK = "\x1b[36m(TaskRunner pid=1)\x1b[0m "


@pytest.fixture(autouse=True)
def surroundings_of_its_own(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in ("SENTINEL_RUN", "SENTINEL_CONFIG", "SENTINEL_DISABLED"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def files(tmp_path):
    (tmp_path / "golden.json").write_text(json.dumps(golden()))
    (tmp_path / "target.json").write_text(json.dumps(target()))
    return tmp_path


def run(capsys, *words):
    code = main([str(word) for word in words])
    out, err = capsys.readouterr()
    return code, out, err


def test_the_document_has_the_form_of_the_contract(files, capsys):
    code, out, _ = run(
        capsys, "preflight", "--baseline", files / "golden.json", "--target", files / "target.json", "--json"
    )
    document = json.loads(out)

    assert [check["id"] for check in document["checks"]] == list(CHECKS)
    for check in document["checks"]:
        assert set(check) >= {"id", "title", "status", "found", "expected", "fix"}
        assert check["status"] in {"pass", "fail", "warn", "unknown"}
    # Two fingerprints say nothing of the run itself.
    unknown = {check["id"] for check in document["checks"] if check["status"] == "unknown"}
    assert unknown == {"replay.recording", "replay.happened", "capture.armed", "capture.compared"}
    assert document["verdict"] == "incomplete"
    assert code == 1


def test_a_planted_difference_is_misaligned_and_shown_with_what_to_do(files, capsys):
    plain = changed(target(), "process/packages/transformers", {"version": "4.40.0"})
    (files / "target.json").write_text(json.dumps(plain))

    code, out, _ = run(capsys, "preflight", "--baseline", files / "golden.json", "--target", files / "target.json")

    assert code == 1
    assert "fail    versions.strict" in out
    assert "-> pip install transformers==4.57.1" in out
    assert out.rstrip().endswith("misaligned")


def test_a_fingerprint_of_another_format_is_all_unknown_with_the_reason(files, capsys):
    (files / "golden.json").write_text(json.dumps({**golden(), "sentinel_fingerprint": 9}))

    code, out, err = run(
        capsys, "preflight", "--baseline", files / "golden.json", "--target", files / "target.json", "--json"
    )

    statuses = {check["status"] for check in json.loads(out)["checks"]}
    assert code == 1
    assert "fail" not in statuses
    assert "format 9 is not known here" in err


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("none.json", None, "no such file"),
        ("x.json", "{", "x.json"),
        ("x.json", '{"sentinel_fingerprint": 1,', "is no fingerprint"),
    ],
)
def test_a_baseline_that_cannot_be_used_is_one_line_and_2(tmp_path, capsys, name, content, said):
    if content is not None:
        (tmp_path / name).write_text(content)

    code, out, err = run(capsys, "preflight", "--baseline", tmp_path / name)

    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert said in err


def log(path, config, steps=2, loaded=()):
    lines = [TASK + line for line in pformat(config).splitlines()]
    for step in range(1, steps + 1):
        if step in loaded:
            lines.append(f"{TASK}[RolloutSkip()] Load generate result at step {step} from: /x")
        lines.append(
            f"{TASK}step:{step} - actor/lr:1e-06 - actor/pg_loss:0.5 - training/global_step:{step} - actor/grad_norm:0.1"
        )
    path.write_text("\n".join(lines) + "\n")
    return path


CONFIG = {
    "actor_rollout_ref": {
        "actor": {"clip_ratio": 0.2},
        "rollout": {"load_format": "dummy", "calculate_log_probs": True},
    },
    "data": {"shuffle": False, "validation_shuffle": False},
    "trainer": {"experiment_name": "e", "project_name": "p", "n": 1},
}


@pytest.mark.torch
def test_both_sides_recorded_on_this_machine_from_log_model_and_rollouts_agree(tmp_path, capsys):
    model = tmp_path / "model"
    model.mkdir()
    (model / "a.safetensors").write_bytes(b"w")
    (model / "config.json").write_text("{}")
    (tmp_path / "r").mkdir()
    (tmp_path / "r" / "1.jsonl").write_text('{"input": "q", "output": "a"}\n')
    given = ["--model", model, "--log", log(tmp_path / "a.log", CONFIG), "--rollouts", tmp_path / "r"]

    code, out, _ = run(capsys, "fingerprint", "-o", tmp_path / "g.json", *given)
    assert code == 0
    assert "values in force known from the block printed in the log" in out
    _, out, _ = run(capsys, "preflight", "--baseline", tmp_path / "g.json", *given, "--json")

    checks = {check["id"]: check for check in json.loads(out)["checks"]}
    for name in (
        "versions.strict",
        "versions.close",
        "weights.files",
        "weights.config",
        "data.shuffle",
        "data.order",
        "config.effective",
        "rollout.load_format",
        "rollout.logprobs",
        "rollout.text",
    ):
        assert checks[name]["status"] == "pass", checks[name]
    assert checks["replay.happened"]["status"] == "unknown"


def test_a_replay_is_judged_by_its_recording_and_by_its_log(tmp_path, capsys):
    root = tmp_path / "dump"
    for step in (1, 2):
        (root / "e_p" / "GBS8_N4_in8_out8" / str(step)).mkdir(parents=True)
    replay = {**CONFIG, "skip": {"rollout": {"enable": True, "steps": [1, 2], "dump_dir": str(root)}}}
    run(capsys, "fingerprint", "-o", tmp_path / "g.json", "--log", log(tmp_path / "g.log", CONFIG))

    def statuses(config, **kwargs):
        path = log(tmp_path / "t.log", config, **kwargs)
        _, out, _ = run(capsys, "preflight", "--baseline", tmp_path / "g.json", "--log", path, "--json")
        found = {check["id"]: check["status"] for check in json.loads(out)["checks"]}
        return found["replay.recording"], found["replay.happened"]

    assert statuses(replay, loaded=(1, 2)) == ("pass", "pass")
    assert statuses(replay, loaded=(1,)) == ("pass", "fail")
    assert statuses(replay, loaded=()) == ("pass", "unknown")
    (root / "e_p" / "GBS8_N4_in8_out8" / "2").rmdir()
    assert statuses(replay, loaded=(1, 2)) == ("fail", "pass")


def test_mending_prints_overrides_exports_and_the_difference_of_the_script_and_writes_nothing(tmp_path, capsys):
    launch = tmp_path / "run.sh"
    text = "#!/bin/bash\nexport HF_TOKEN=pl4nted-one WANDB_API_KEY='pl4nted two'\npython3 -m verl.trainer.main_ppo \\\n  data.shuffle=True data.validation_shuffle=False \\\n  actor_rollout_ref.rollout.calculate_log_probs=False\n"
    launch.write_text(text)
    (tmp_path / "golden.json").write_text(json.dumps(golden()))

    code, out, _ = run(
        capsys,
        "preflight",
        "--baseline",
        tmp_path / "golden.json",
        "--launch",
        launch,
        "--scenario",
        "hccl",
        "--fix",
        "--json",
    )
    fix = json.loads(out)["fix"]

    assert code == 1
    assert {"data.shuffle=False", "actor_rollout_ref.rollout.calculate_log_probs=True"} <= set(fix["overrides"])
    assert "export HCCL_DETERMINISTIC=true" in fix["exports"]
    assert launch.read_text() == text
    assert "-  data.shuffle=True data.validation_shuffle=False \\" in fix["launch"]
    assert "+  data.shuffle=False data.validation_shuffle=False \\" in fix["launch"]
    assert "+export HCCL_DETERMINISTIC=true" in fix["launch"]
    assert "HF_TOKEN=" in fix["launch"]
    assert "pl4nted" not in out


@pytest.mark.torch
def test_a_launch_that_names_a_run_is_armed_and_a_disabled_one_is_not(tmp_path, capsys):
    (tmp_path / "golden.json").write_text(json.dumps(golden()))
    launch = tmp_path / "run.sh"

    def armed(line):
        launch.write_text(f"{line}\npython3 -m verl.trainer.main_ppo a=$A\n")
        _, out, _ = run(capsys, "preflight", "--baseline", tmp_path / "golden.json", "--launch", launch, "--json")
        return next(check for check in json.loads(out)["checks"] if check["id"] == "capture.armed")

    assert "golden dumps" in armed("export SENTINEL_RUN=r")["found"]
    assert "SENTINEL_RUN" not in armed("export SENTINEL_RUN=r")["found"]
    assert armed("export SENTINEL_RUN=r SENTINEL_DISABLED=1")["status"] == "fail"


def test_the_dump_comparisons_of_a_watched_run_count(files, capsys):
    incident = {
        "id": "r:1",
        "run": "r",
        "kind": "drift",
        "state": "open",
        "opened_at_step": 1,
        "closed_at_step": None,
        "severity": "critical",
        "stage": "actor_update",
        "because": "x",
        "triage": {"verdict": "diverged"},
    }
    folder = files / "home" / ".sentinel" / "incidents" / "1"
    folder.mkdir(parents=True)

    def compared(triage):
        (folder / "incident.json").write_text(json.dumps({**incident, "triage": triage}))
        _, out, _ = run(
            capsys,
            "preflight",
            "--baseline",
            files / "golden.json",
            "--target",
            files / "target.json",
            "--run",
            "r",
            "--json",
        )
        return json.loads(out)["checks"][-1]["status"]

    assert compared({"verdict": "diverged"}) == "fail"
    assert compared({"verdict": "same"}) == "pass"
    assert compared({"verdict": "not_comparable"}) == "unknown"
    assert compared(None) == "unknown"


def test_a_fingerprint_needs_a_place_to_go(capsys):
    code, _, err = run(capsys, "fingerprint")

    assert code == 2
    assert "-o FILE" in err


def test_every_rule_says_why_and_from_where():
    found = load_rules()

    for variable in found.variables:
        assert variable.why
        assert variable.source
    for one in found.expected:
        assert one.why
        assert one.source
    for rule in found.keys:
        assert rule.check in {"", *CHECKS}
        assert rule.severity in {"fail", "warn", "ignore"}
        assert rule.why or rule.check


@pytest.mark.torch
def test_a_bundle_keeps_a_fingerprint_and_preflight_reads_it_there(tmp_path, capsys):
    metrics = tmp_path / "m.log"
    log(metrics, CONFIG)
    run(capsys, "fingerprint", "-o", tmp_path / "g.json", "--log", metrics)
    code, _, err = run(
        capsys, "baseline", "record", metrics, "-o", tmp_path / "b.sentinel", "--fingerprint", tmp_path / "g.json"
    )
    assert code == 0, err

    _, out, _ = run(capsys, "preflight", "--baseline", tmp_path / "b.sentinel", "--log", metrics, "--json")

    checks = {check["id"]: check for check in json.loads(out)["checks"]}
    assert checks["versions.strict"]["status"] == checks["config.effective"]["status"] == "pass"
    assert "the baseline holds none" in checks["capture.armed"]["found"]


def test_what_the_trainer_fills_in_when_it_starts_is_no_difference(tmp_path, capsys):
    printed = {**CONFIG, "critic": {"optim": {"total_training_steps": -1}}, "reward": {"reward_model": {"nnodes": 0}}}
    live = {**CONFIG, "critic": {"optim": {"total_training_steps": 8}}, "reward": {"reward_model": {"nnodes": 1}}}
    recording = tmp_path / "r.jsonl"
    lines = [
        {"t": "start", "at": 1.0, "run": "r", "facts": {"verl": "0.9.1"}},
        {"t": "facts", "at": 1.0, "facts": {"config": {"effective": live}}},
        {"t": "step", "step": 1, "at": 2.0, "values": {"actor/lr": 1.0}},
    ]
    recording.write_text("".join(json.dumps(line) + "\n" for line in lines))

    _, out, _ = run(capsys, "preflight", "--baseline", recording, "--log", log(tmp_path / "a.log", printed), "--json")

    checks = {check["id"]: check for check in json.loads(out)["checks"]}
    assert checks["config.effective"]["status"] == "pass", checks["config.effective"]


def test_facts_of_several_seeds_are_kept_where_all_agree():
    one = {
        "verl": "1",
        "config": {"effective": {"name": "a", "lr": 1, "deep": {"x": 1}}},
        "workers": [{"rank": 0, "host": "p"}],
    }
    two = {
        "verl": "1",
        "config": {"effective": {"name": "b", "lr": 1, "deep": {"x": 1}}},
        "workers": [{"rank": 0, "host": "q"}],
    }

    kept = {"verl": "1", "config": {"effective": {"lr": 1, "deep": {"x": 1}}}, "workers": [{"rank": 0}]}
    assert agreed([one, two]) == kept
    assert agreed([one]) == one


def recorded(path, effective):
    """A recording whose run said what it computes with."""
    lines = [
        {"t": "start", "at": 1.0, "run": "r", "facts": {"verl": "0.9.1"}},
        {"t": "step", "step": 1, "at": 2.0, "values": {"actor/entropy": path.stem == "twin"}, "unreadable": []},
        {"t": "facts", "at": 3.0, "facts": {"config": {"effective": effective}}},
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def test_a_twin_of_the_baseline_is_no_part_of_its_fingerprint(tmp_path, capsys):
    """It has another kernel on purpose; the baseline's own value must not become unknown by that."""
    reference = recorded(tmp_path / "reference.jsonl", {"a": {"lr": 1, "attn_implementation": "eager"}})
    twin = recorded(tmp_path / "twin.jsonl", {"a": {"lr": 1, "attn_implementation": "sdpa"}})
    code, _, err = run(capsys, "baseline", "record", reference, "--twin", twin, "-o", tmp_path / "b.sentinel")
    assert code == 0, err

    _, out, _ = run(capsys, "baseline", "show", tmp_path / "b.sentinel", "--json")

    kept = json.loads(out)["fingerprint"]["facts"]["config"]["effective"]
    assert kept == {"a": {"lr": 1, "attn_implementation": "eager"}}
