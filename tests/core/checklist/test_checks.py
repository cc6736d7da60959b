# SPDX-License-Identifier: Apache-2.0
"""Each difference between two sides fails its own check and no other; what is not known never passes."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sentinel.core.checklist import CHECKS, Evidence, Side, check_all, comparable, mending, verdict
from tests.support.sides import EVIDENCE, RULES, changed, golden, target


def answers(here, there=None, evidence=EVIDENCE, scenario=None):
    results = check_all(
        Side.from_plain(here), Side.from_plain(there or golden()), RULES, scenario=scenario, evidence=evidence
    )
    assert tuple(result.id for result in results) == CHECKS
    return {result.id: result for result in results}


def statuses(*args, **kwargs):
    return {name: result.status for name, result in answers(*args, **kwargs).items()}


EFFECTIVE = "config/effective/"
WORKER = "workers/3/"
# (id, what is planted: path, value), in the order of the guide
PLANTED = [
    ("versions.strict", [("process/packages/verl", {"version": "0.8.0", "commit": "a" * 40})]),
    ("versions.strict", [("process/packages/verl", {"version": "0.9.1", "commit": "b" * 40})]),
    ("versions.strict", [("process/packages/transformers", {"version": "4.57.2"})]),
    ("versions.strict", [("process/packages/transformers", ...)]),
    (
        "versions.strict",
        [
            (f"{WORKER}packages", {"transformers": {"version": "4.40.0"}}),
            ("workers/2/packages", {"transformers": {"version": "4.57.1"}}),
        ],
    ),
    ("weights.files", [("model/files/model-00002-of-00002.safetensors", {"bytes": 132, "sha256": "0" * 64})]),
    ("weights.files", [("model/files/model-00002-of-00002.safetensors", {"bytes": 1, "sha256": "0" * 64})]),
    ("weights.files", [("model/files/tokenizer.json", {"bytes": 114, "sha256": "1" * 64})]),
    ("weights.files", [("model/files/tokenizer.json", ...)]),
    ("weights.files", [("model/files/extra.safetensors", {"bytes": 1, "sha256": "1" * 64})]),
    (
        "weights.config",
        [
            ("model/files/config.json", {"bytes": 111, "sha256": "2" * 64}),
            ("model/documents/config.json", {"eos_token_id": 151643, "torch_dtype": "bfloat16"}),
        ],
    ),
    ("weights.config", [("model/files/generation_config.json", ...)]),
    ("data.shuffle", [(f"{EFFECTIVE}data.shuffle", True), ("config/explicit/data.shuffle", True)]),
    ("data.shuffle", [(f"{EFFECTIVE}data.validation_shuffle", True), ("config/explicit/data.validation_shuffle", ...)]),
    ("data.order", [("data/order/3", {"prompts": "other", "texts": "t3", "rows": 8})]),
    (
        "config.explicit",
        [
            ("config/explicit/actor_rollout_ref.actor.optim.lr", 2e-6),
            (f"{EFFECTIVE}actor_rollout_ref.actor.optim.lr", 2e-6),
        ],
    ),
    (
        "config.explicit",
        [("config/explicit/algorithm.kl_ctrl.kl_coef", 0.5), (f"{EFFECTIVE}algorithm.kl_ctrl.kl_coef", 0.5)],
    ),
    ("config.effective", [(f"{EFFECTIVE}actor_rollout_ref.actor.clip_ratio", 0.3)]),
    ("config.effective", [(f"{EFFECTIVE}actor_rollout_ref.rollout.temperature", 0.7)]),
    ("determinism.seed", [(f"{WORKER}seeds", {"called": False, "why": "msprobe is missing"})]),
    ("determinism.seed", [(f"{WORKER}seeds", {"called": True, "mode": False, "seed": 1234})]),
    ("determinism.env", [(f"{WORKER}variables/HCCL_DETERMINISTIC", ...)]),
    ("determinism.env", [(f"{WORKER}variables/CLOSE_MATMUL_K_SHIFT", "0")]),
    ("determinism.env", [(f"{WORKER}variables/ATB_MATMUL_SHUFFLE_K_ENABLE", "1")]),
    ("determinism.env", [(f"{WORKER}variables/VLLM_ENABLE_V1_MULTIPROCESSING", "1")]),
    ("determinism.env", [(f"{WORKER}variables/VLLM_ASCEND_ENABLE_NZ", "2")]),
    ("determinism.env", [(f"{WORKER}variables/HCCL_OP_EXPANSION_MODE", "AIV")]),
    ("rollout.load_format", [(f"{EFFECTIVE}actor_rollout_ref.rollout.load_format", "safetensors")]),
    ("rollout.logprobs", [(f"{EFFECTIVE}actor_rollout_ref.rollout.calculate_log_probs", False)]),
    ("replay.recording", [(f"{EFFECTIVE}skip.rollout.steps", [])]),
    ("replay.recording", [(f"{EFFECTIVE}skip.rollout.steps", [1, 2, 3, 4, 5, 6])]),
]
WARNED = [
    ("versions.close", [("process/packages/torch", {"version": "2.5.1"})]),
    ("versions.close", [("process/packages/vllm", ...)]),
    (
        "config.explicit",
        [
            ("config/explicit/actor_rollout_ref.rollout.tensor_model_parallel_size", 4),
            (f"{EFFECTIVE}actor_rollout_ref.rollout.tensor_model_parallel_size", 4),
        ],
    ),
    ("config.effective", [(f"{EFFECTIVE}trainer.n_gpus_per_node", 16)]),
    ("config.effective", [(f"{EFFECTIVE}a_key_of_another_version", 1)]),
    ("weights.config", [("model/files/config.json", {"bytes": 111, "sha256": "2" * 64})]),
]
EVIDENCED = [
    ("replay.happened", {"replayed": (1, 2, 4, 5)}),
    ("capture.armed", {"armed": False}),
    ("capture.compared", {"triaged": ("same", "diverged")}),
    ("replay.recording", {"recording": {"path": "/rollouts", "steps": [1, 2, 3]}}),
]


def planted(changes):
    plain = target()
    for path, value in changes:
        plain = changed(plain, path, value)
    return plain


def test_two_sides_that_agree_pass_every_check_whatever_their_devices_and_paths():
    found = answers(target())

    assert {result.status for result in found.values()} == {"pass"}, [r for r in found.values() if r.status != "pass"]
    assert verdict(list(found.values())) == "aligned"
    assert not mending(list(found.values())).overrides


@pytest.mark.parametrize(("check", "changes"), PLANTED, ids=lambda part: str(part)[:70])
def test_each_planted_difference_fails_its_check_and_no_other(check, changes):
    found = answers(planted(changes))

    assert {name for name, result in found.items() if result.status != "pass"} == {check}
    assert found[check].status == "fail"
    assert found[check].fix
    assert found[check].found != found[check].expected
    assert verdict(list(found.values())) == "misaligned"


@pytest.mark.parametrize(("check", "changes"), WARNED, ids=lambda part: str(part)[:70])
def test_what_only_rounds_otherwise_is_warned_of(check, changes):
    found = statuses(planted(changes))

    assert {name for name, status in found.items() if status != "pass"} == {check}
    assert found[check] == "warn"


@pytest.mark.parametrize(("check", "known"), EVIDENCED)
def test_what_the_run_shows_fails_its_check_and_no_other(check, known):
    found = statuses(target(), evidence=dataclasses.replace(EVIDENCE, **known))

    assert {name for name, status in found.items() if status != "pass"} == {check}
    assert found[check] == "fail"


def test_text_is_judged_where_it_is_not_the_baselines_and_unknown_where_both_are_garbled():
    def answer(here, verdict):
        found = answers(here, evidence=dataclasses.replace(EVIDENCE, text=(verdict, 0.4)))
        return found["rollout.text"].status

    other = target()
    other["data"] = {"order": {step: {**entry, "texts": "else"} for step, entry in other["data"]["order"].items()}}
    assert answer(other, "healthy") == "pass"
    assert answer(other, "garbled") == "fail"
    assert answer(target(), "healthy") == "pass"
    assert answer(target(), "garbled") == "unknown"


def test_every_check_is_planted():
    failing = {check for check, _ in PLANTED} | {check for check, _ in EVIDENCED}

    assert set(CHECKS) - failing == {"versions.close", "rollout.text"}
    assert "versions.close" in {check for check, _ in WARNED}


@pytest.mark.parametrize("part", ["process", "workers", "model", "config", "data"])
@pytest.mark.parametrize("side", ["target", "golden"])
def test_what_was_not_recorded_is_unknown_and_never_a_pass(part, side):
    here, there = target(), golden()
    (here if side == "target" else there).pop(part)
    before = statuses(target())

    found = statuses(here, there, scenario="hccl")

    if (part, side) == ("workers", "target"):
        # The launcher stands in for them, and its variables are known not to be set.
        assert found.pop("determinism.env") == "fail"
    assert "fail" not in found.values()
    lost = {name for name, status in found.items() if status != before[name]}
    assert all(found[name] in {"unknown", "warn"} for name in lost)
    needs = {
        ("process", "target"): {"versions.strict", "versions.close", "capture.armed"},
        ("process", "golden"): {"versions.strict", "versions.close"},
        ("workers", "target"): {"determinism.seed"},
        ("workers", "golden"): set(),
        ("model", "target"): {"weights.files", "weights.config"},
        ("model", "golden"): {"weights.files", "weights.config"},
        ("data", "target"): {"data.order", "rollout.text"},
        ("data", "golden"): {"data.order", "rollout.text"},
        ("config", "target"): {
            "data.shuffle",
            "config.explicit",
            "config.effective",
            "rollout.load_format",
            "rollout.logprobs",
            "replay.recording",
        },
        ("config", "golden"): {
            "data.shuffle",
            "config.explicit",
            "config.effective",
            "rollout.load_format",
            "rollout.logprobs",
        },
    }[part, side]
    assert lost == needs


def test_nothing_known_at_all_is_all_unknown():
    found = statuses({}, {}, evidence=Evidence())

    assert set(found.values()) == {"unknown"}


def test_without_evidence_the_checks_of_the_run_are_unknown():
    found = statuses(target(), evidence=Evidence())

    assert {name for name, status in found.items() if status == "unknown"} == {
        "replay.recording",
        "replay.happened",
        "capture.armed",
        "capture.compared",
    }


@pytest.mark.parametrize(
    ("scenario", "missing"),
    [
        ("hccl", {"HCCL_DETERMINISTIC"}),
        ("lccl", {"LCCL_DETERMINISTIC", "ATB_LLM_LCOC_ENABLE", "HCCL_OP_EXPANSION_MODE"}),
        ("single", set()),
    ],
)
def test_each_scenario_has_its_own_variables(scenario, missing):
    common = {
        "CLOSE_MATMUL_K_SHIFT",
        "ATB_MATMUL_SHUFFLE_K_ENABLE",
        "VLLM_ENABLE_V1_MULTIPROCESSING",
        "VLLM_ASCEND_ENABLE_NZ",
    }
    bare = target()
    for worker in bare["workers"]:
        worker["variables"] = {}

    result = answers(bare, scenario=scenario)["determinism.env"]

    assert {d.what for d in result.differences} == common | missing
    assert all(d.fix == f"export {d.what}={d.expected}" for d in result.differences)
    assert all(d.why and d.source for d in result.differences)


def test_the_scenario_is_found_from_variables_and_devices():
    single = changed(target(), "config/effective/trainer.n_gpus_per_node", 1)
    single["workers"] = single["workers"][:1]
    lccl = target()
    for worker in lccl["workers"]:
        worker["variables"] = {
            "CLOSE_MATMUL_K_SHIFT": "1",
            "ATB_MATMUL_SHUFFLE_K_ENABLE": "0",
            "HCCL_OP_EXPANSION_MODE": "AIV",
            "LCCL_DETERMINISTIC": "1",
            "ATB_LLM_LCOC_ENABLE": "0",
            "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
            "VLLM_ASCEND_ENABLE_NZ": "0",
        }

    assert answers(single)["determinism.env"].title.endswith("(single)")
    assert answers(lccl)["determinism.env"].status == "pass"
    assert answers(lccl)["determinism.env"].title.endswith("(lccl)")


def test_a_worker_that_lacks_a_variable_is_named():
    result = answers(changed(target(), "workers/3/variables/HCCL_DETERMINISTIC", ...))["determinism.env"]

    assert "rank 3" in result.found
    assert "rank 2" not in result.found


def test_a_default_that_nobody_wrote_is_told_as_that():
    result = answers(changed(target(), f"{EFFECTIVE}actor_rollout_ref.actor.clip_ratio", 0.3))["config.effective"]

    assert "nobody wrote it" in result.why


def test_values_that_hide_faults_are_warned_of_even_where_both_sides_agree():
    key = "actor_rollout_ref.actor.use_dynamic_bsz"
    here, there = (changed(side, f"{EFFECTIVE}{key}", True) for side in (target(), golden()))

    result = answers(here, there)["config.effective"]

    assert result.status == "warn"
    assert f"{key}=False" in result.fix


def test_micro_batches_of_other_size_for_log_probs_and_update_are_warned_of():
    key = "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu"
    here, there = (changed(side, f"{EFFECTIVE}{key}", 16) for side in (target(), golden()))

    result = answers(here, there)["config.effective"]

    assert result.status == "warn"
    assert result.differences[0].what == key


def test_an_unresolved_value_of_a_launch_is_unknown_unless_the_log_shows_it():
    key = "actor_rollout_ref.actor.optim.lr"
    here = changed(target(), f"config/explicit/{key}", "$LR")
    here["config"]["unresolved"] = [key]

    assert answers(here)["config.explicit"].status == "pass"
    del here["config"]["effective"]
    there = golden()
    found = answers(here, there)
    assert found["config.explicit"].status == "unknown"
    assert found["config.explicit"].differences[0].what == key


def test_only_logs_on_both_sides_are_enough_for_what_was_written():
    here, there = target(), golden()
    del here["config"]["explicit"], there["config"]["explicit"]

    assert statuses(here, there)["config.explicit"] == "pass"
    other = changed(here, f"{EFFECTIVE}actor_rollout_ref.actor.clip_ratio", 0.3)
    found = statuses(other, there)
    assert (found["config.explicit"], found["config.effective"]) == ("unknown", "fail")


def test_a_sample_of_a_file_is_no_proof():
    here, there = target(), golden()
    for side in (here, there):
        side["model"]["files"]["tokenizer.json"] = {"bytes": 114, "sampled": "s"}

    assert statuses(here, there)["weights.files"] == "unknown"
    here["model"]["files"]["tokenizer.json"] = {"bytes": 114, "sampled": "t"}
    assert statuses(here, there)["weights.files"] == "fail"


def test_a_file_that_could_not_be_read_is_unknown():
    here = changed(target(), "model/files/tokenizer.json", {"unreadable": "Permission denied"})
    result = answers(here)["weights.files"]

    assert result.status == "unknown"
    assert "Permission denied" in result.found


def test_what_an_older_bundle_kept_is_read_and_what_it_lacks_is_unknown():
    old = {
        "facts": {"verl": "0.9.1", "transformers": "4.57.1", "torch": "2.7.1", "torch_npu": "", "vllm": ""},
        "model": {"files": golden()["model"]["files"]},
        "config": {"values": {"data": {"shuffle": False, "validation_shuffle": False}}},
    }

    found = statuses(target(), old)

    assert found["versions.strict"] == found["weights.files"] == found["data.shuffle"] == "pass"
    assert found["weights.config"] == "pass"
    assert found["data.order"] == found["rollout.load_format"] == "unknown"


def test_a_fingerprint_of_another_format_is_refused_in_one_line():
    with pytest.raises(ValueError, match="format 2 is not known here"):
        Side.from_plain({"sentinel_fingerprint": 2})


def test_mending_names_the_overrides_and_exports_and_what_is_left_to_do_by_hand():
    here = target()
    here["config"]["effective"] |= {
        "data.shuffle": True,
        "actor_rollout_ref.actor.clip_ratio": 0.3,
        "actor_rollout_ref.rollout.calculate_log_probs": False,
        "actor_rollout_ref.rollout.load_format": "safetensors",
    }
    here["process"]["packages"]["verl"] = {"version": "0.8.0"}
    for worker in here["workers"]:
        del worker["variables"]["HCCL_DETERMINISTIC"]

    found = mending(list(answers(here).values()))

    assert set(found.overrides) == {
        "data.shuffle=False",
        "actor_rollout_ref.actor.clip_ratio=0.2",
        "actor_rollout_ref.rollout.calculate_log_probs=True",
        "actor_rollout_ref.rollout.load_format=dummy",
    }
    assert found.exports == ("export HCCL_DETERMINISTIC=true",)
    assert "verl: pip install verl==0.9.1" in found.by_hand


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("1e-06", 1e-6),
        ("True", True),
        ("null", None),
        ("[1]", "[1]"),
        ([1, "2"], (1.0, 2)),
        ({"a": "1"}, {"a": 1}),
        (float("nan"), "nan"),
    ],
)
def test_equal_settings_are_equal_however_they_are_written(one, other):
    assert comparable(one) == comparable(other)


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=8,
)


@given(
    st.dictionaries(st.sampled_from(["process", "workers", "model", "config", "data", "facts", "notes"]), PLAIN),
    st.dictionaries(st.sampled_from(["process", "workers", "model", "config", "data", "facts"]), PLAIN),
)
def test_a_document_of_any_content_is_judged_without_an_error_and_never_aligned(here, there):
    results = check_all(Side.from_plain(here), Side.from_plain(there), RULES)

    assert verdict(results) != "aligned"


def test_what_the_workers_compute_with_counts_not_what_the_launcher_has():
    here = target()
    for worker in here["workers"]:
        worker["packages"] = {"transformers": {"version": "4.40.0"}}

    found = answers(here)

    assert found["versions.strict"].status == "fail"
    assert "4.40.0" in found["versions.strict"].found
