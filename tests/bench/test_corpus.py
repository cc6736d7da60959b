# SPDX-License-Identifier: Apache-2.0
"""The trainer of the corpus is honest: deterministic, replayable, and untouched by a fault before its onset."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from bench.corpus import limits, plan  # noqa: E402
from bench.corpus.faults import KINDS, Fault  # noqa: E402
from bench.corpus.model import Kernel, Tweak, forward, fresh, round_mantissa, views  # noqa: E402
from bench.corpus.recipe import RECIPES  # noqa: E402
from bench.corpus.strength import OWN_METRICS  # noqa: E402
from bench.corpus.task import EOS, PAD, Task, problems, response_mask, score  # noqa: E402
from bench.corpus.trainer import Trainer, recording  # noqa: E402
from sentinel.records import STAGES  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.timeout(120)]

TINY = {"width": 32, "layers": 2, "heads": 2, "prompts": 4, "warm_steps": 20, "steps": 6}
GRPO = replace(RECIPES["grpo-small"], group=4, **TINY)
PPO = replace(RECIPES["ppo-small"], **(TINY | {"prompts": 16}))
PLAIN = Kernel()
TWIN = Kernel(attention="sdpa", splits=2, micro_batches=4, fused_norm=True)


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def walk(trainer, steps=4):
    return [
        {key: value for key, value in trainer.step().items() if not key.startswith("timing_s")} for _ in range(steps)
    ]


def same(one, two):
    return one.keys() == two.keys() and all(np.array_equal(one[key], two[key], equal_nan=True) for key in one)


@pytest.fixture(scope="module", params=[GRPO, PPO], ids=["grpo", "ppo"])
def base(request):
    trainer = Trainer(request.param, PLAIN, 1, score_again=True)
    steps = walk(trainer)
    return request.param, steps, recording(trainer)


def test_a_run_is_the_same_each_time(base):
    recipe, steps, _ = base

    again = walk(Trainer(recipe, PLAIN, 1, score_again=True))

    assert all(same(one, two) for one, two in zip(steps, again, strict=True))


def test_another_seed_is_another_run(base):
    recipe, steps, _ = base

    other = walk(Trainer(recipe, PLAIN, 2, score_again=True), 1)

    assert other[0]["critic/score/mean"] != steps[0]["critic/score/mean"]


def test_a_replay_with_the_same_kernels_is_bit_identical(base):
    recipe, steps, tape = base

    replayed = walk(Trainer(recipe, PLAIN, 1, replay=tape))

    assert all(same(one, two) for one, two in zip(steps, replayed, strict=True))


def test_a_twin_has_equal_tokens_and_slightly_other_numbers_that_drift_apart(base):
    recipe, steps, tape = base

    twin = walk(Trainer(recipe, TWIN, 1, replay=tape))

    for mine, theirs in zip(steps, twin, strict=True):
        for key in ("response_length/mean", "critic/score/mean", "prompt_length/mean"):
            assert mine[key] == theirs[key]
        assert mine["actor/entropy"] != theirs["actor/entropy"]
        assert mine["actor/entropy"] == pytest.approx(theirs["actor/entropy"], rel=0.05)


@pytest.fixture(scope="module")
def bases():
    made = {}
    for recipe in (GRPO, PPO):
        trainer = Trainer(recipe, PLAIN, 1, score_again=True)
        made[recipe.algorithm] = recipe, walk(trainer, 3), recording(trainer)
    return made


@pytest.mark.parametrize("kind", KINDS.values(), ids=lambda kind: kind.name)
def test_a_fault_changes_nothing_before_its_onset_and_something_after(kind, bases):
    recipe, steps, tape = bases[kind.algorithms[0]]

    faulty = walk(Trainer(recipe, PLAIN, 1, replay=tape, plant=Fault(kind.name, kind.sizes[2], onset=2)), 3)

    assert same(steps[0], faulty[0])
    assert not all(same(one, two) for one, two in zip(steps[1:], faulty[1:], strict=True))


def test_a_fault_of_the_rollout_engine_leaves_a_replays_training_untouched(base):
    recipe, steps, tape = base

    faulty = walk(Trainer(recipe, PLAIN, 1, replay=tape, plant=Fault("weights_noisy", 0.3, onset=2)))

    for mine, theirs in zip(steps, faulty, strict=True):
        assert mine["actor/grad_norm"] == theirs["actor/grad_norm"]
    assert faulty[2]["training/rollout_probs_diff_mean"] > 2 * steps[2]["training/rollout_probs_diff_mean"]


def test_a_gradient_that_is_not_finite_is_skipped_and_the_run_goes_on(base):
    recipe, _, tape = base

    faulty = walk(Trainer(recipe, PLAIN, 1, replay=tape, plant=Fault("gradient_nan", 1, onset=2)))

    assert np.isnan(faulty[1]["actor/grad_norm"])
    assert np.isfinite(list(faulty[2].values())).all()


def test_all_kernels_compute_the_same_function():
    shape = GRPO.shape
    weights = views(fresh(shape, 3), shape)
    tokens = problems(Task(), 1).prompts[:8]

    exact, _ = forward(weights, tokens, shape, Kernel(bf16=False))

    for attention in ("eager", "sdpa", "half", "online", "exp2"):
        for splits in (1, 2, 3):
            kernel = Kernel(bf16=False, attention=attention, splits=splits, fused_norm=splits == 2)
            assert torch.allclose(forward(weights, tokens, shape, kernel)[0], exact, atol=1e-5)
    rough, _ = forward(weights, tokens, shape, Kernel())
    assert 0 < float((rough - exact).abs().max()) < 0.1


def test_decoding_with_the_cache_equals_one_pass():
    shape = GRPO.shape
    weights = views(fresh(shape, 3), shape)
    tokens = problems(Task(), 1).prompts[:8]
    kernel = Kernel(bf16=False)

    whole, _ = forward(weights, tokens, shape, kernel)
    _, cache = forward(weights, tokens[:, :-1], shape, kernel)
    last, _ = forward(weights, tokens[:, -1:], shape, kernel, cache=cache)

    assert torch.allclose(last[:, 0], whole[:, -1], atol=1e-5)


def test_dropout_and_lost_bits_are_planted_only_when_asked_for():
    shape = GRPO.shape
    weights = views(fresh(shape, 3), shape)
    tokens = problems(Task(), 1).prompts[:4]
    plain, _ = forward(weights, tokens, shape, PLAIN)

    assert torch.equal(forward(weights, tokens, shape, PLAIN, tweak=Tweak())[0], plain)
    assert not torch.equal(forward(weights, tokens, shape, PLAIN, tweak=Tweak(bits=3))[0], plain)


def test_rounding_keeps_so_many_bits():
    assert round_mantissa(torch.tensor([1.0 + 2**-6]), 3).item() == 1.0
    assert round_mantissa(torch.tensor([1.25]), 3).item() == 1.25


def test_the_reward_is_the_share_of_right_positions():
    answer = torch.tensor([[5, 6, 7, EOS, PAD]])

    assert score(torch.tensor([[5, 6, 7, EOS, PAD]]), answer).item() == 1
    assert score(torch.tensor([[5, 9, 7, EOS, PAD]]), answer).item() == 0.75
    assert score(torch.tensor([[5, 6, 7, 8, EOS]]), answer).item() == pytest.approx(0.6)


def test_nothing_after_the_first_end_counts():
    assert response_mask(torch.tensor([[5, EOS, EOS, 6]])).tolist() == [[True, True, False, False]]


def test_every_kind_has_a_known_stage_with_metrics_of_its_own_and_three_growing_sizes():
    for kind in KINDS.values():
        assert kind.stage in STAGES
        assert kind.stage in OWN_METRICS
        assert len(set(kind.sizes)) == 3
    assert {kind.stage for kind in KINDS.values()} == set(STAGES)
    assert len(KINDS) >= 20


def test_the_splits_share_no_seed_and_each_holds_out_kinds_and_models():
    runs = {split: plan.runs(split) for split in plan.SPLITS}
    seeds = {split: {run.seed for run in of_split} for split, of_split in runs.items()}
    kinds = {split: {run.fault.kind for run in of_split if run.fault} for split, of_split in runs.items()}
    models = {split: {RECIPES[run.recipe].model for run in of_split} for split, of_split in runs.items()}

    assert not seeds["tuning"] & seeds["validation"]
    assert not seeds["test"] & (seeds["tuning"] | seeds["validation"])
    assert not seeds["fresh"] & (seeds["tuning"] | seeds["validation"] | seeds["test"])
    assert not plan.VALIDATION_KINDS & kinds["tuning"]
    assert kinds["validation"] == set(KINDS) - plan.TEST_KINDS
    assert kinds["test"] >= plan.TEST_KINDS
    assert kinds["fresh"] >= plan.TEST_KINDS
    assert models["validation"] - models["tuning"] == {"tall", "wide"}
    assert models["test"] - models["validation"] == {"narrow"}


def test_the_test_split_has_a_kernel_that_no_other_has():
    kernels = {split: {run.kernel.attention for run in plan.runs(split)} for split in plan.SPLITS}

    assert kernels["test"] - kernels["tuning"] - kernels["validation"] == {"exp2"}


def test_the_noise_of_a_recipe_that_parts_for_good_is_no_measure_for_others():
    table = np.array([[1.0, 0.0, 1.0], [1.5, 0.0, 1.2], [30.0, 0.0, 1.4], [900.0, 0.0, 1.6], [1.2, 5.0, 1.5]])

    assert limits.loudest(table).tolist() == [1.5, 0.0, 1.6]
    assert limits.loudest(table[:1]).tolist() == table[0].tolist()


@pytest.mark.parametrize("regime", ["replayed", "free"])
def test_the_validation_split_has_ten_thousand_clean_steps_per_regime(regime):
    runs = [run for run in plan.runs("validation") if run.regime == regime]

    assert sum(run.steps for run in runs if run.role == "clean") >= 10_000
    assert sum(run.role == "fault" for run in runs) >= 250


def test_ids_are_unique_and_a_replay_names_a_run_that_is_made_before_it():
    for split in plan.SPLITS:
        runs = plan.runs(split)
        ids = [run.id for run in runs]
        assert len(ids) == len(set(ids))
        assert all(run.replay_of is None or run.replay_of in ids[:place] for place, run in enumerate(runs))


def test_a_faulty_run_ends_some_steps_after_its_onset():
    for one, two in pairwise(sorted({(run.fault.onset, run.steps) for run in plan.runs("tuning") if run.fault})):
        assert one[1] - one[0] <= plan.AFTER_ONSET
        assert one[1] <= two[1]
