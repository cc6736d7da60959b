# SPDX-License-Identifier: Apache-2.0
"""A trainer whose step walks verl's data flow: rollout, reward, old, reference, values, advantage, critic, actor, sync.

Every stage passes its product through `plant(point, value)`; a healthy run gets the value back untouched. The rollout
engine has weights of its own that are copied from the actor after each update. In a replay the tokens come from a
recording and everything else is computed.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import torch

from bench.corpus import losses, metrics
from bench.corpus.model import NO_TWEAK, Kernel, forward, views
from bench.corpus.recipe import Recipe, checkpoint, critic_checkpoint, data
from bench.corpus.rollout import Sampling, engine_kernel, generate, rescore
from bench.corpus.task import response_mask, score

VALIDATION_EVERY = 10
HISTORY = 20

Plant = Callable[[str, object, "Trainer"], object]


@dataclass(frozen=True)
class Recording:
    """Tokens and the rollout engine's log-probabilities of each step of a run; step n is row n - 1."""

    responses: torch.Tensor
    log_probs: torch.Tensor


@dataclass
class Batch:
    """What one step knows of its rows; filled stage by stage."""

    prompts: torch.Tensor
    answers: torch.Tensor
    responses: torch.Tensor
    mask: torch.Tensor
    rollout: torch.Tensor
    old: torch.Tensor
    reference: torch.Tensor
    values: torch.Tensor
    advantages: torch.Tensor
    returns: torch.Tensor


class Trainer:
    """One run; `step()` does the next step and returns its metrics."""

    def __init__(
        self,
        recipe: Recipe,
        kernel: Kernel,
        seed: int,
        *,
        replay: Recording | None = None,
        score_again: bool = False,
        plant=None,
    ) -> None:
        self.recipe, self.kernel, self.seed = recipe, kernel, seed
        self.replay, self.score_again = replay, score_again or (replay is not None and not recipe.recorded)
        self.done = 0
        self._plant = plant
        device = kernel.device
        self.device = device
        self.actor = checkpoint(recipe).clone().to(device)
        self.reference = self.actor.clone()
        self.engine = self.actor.clone()
        self.history: deque[torch.Tensor] = deque([self.actor.clone()], maxlen=HISTORY)
        self.engine_kernel = engine_kernel(kernel)
        self.actor_adam = losses.Adam(len(self.actor), device)
        if recipe.algorithm == "ppo":
            self.critic = critic_checkpoint(recipe).to(device)
            self.critic_adam = losses.Adam(len(self.critic), device)
        order = torch.Generator().manual_seed(100 + (seed if recipe.shuffled else 0))
        self.order = torch.randperm(recipe.task.prompts, generator=order)
        self.recorded: list[tuple[torch.Tensor, torch.Tensor]] = []

    def plant(self, point: str, value):
        return value if self._plant is None else self._plant(point, value, self)

    # ------------------------------------------------------------------ one step

    def step(self) -> dict[str, float]:
        started = time.perf_counter()
        self.done += 1
        report: dict[str, float] = {"training/global_step": float(self.done), "training/epoch": 0.0}
        batch = self._rollout(report)
        report["timing_s/gen"] = time.perf_counter() - started
        with torch.no_grad():
            scores = self._reward(batch, report)
            self._old_log_probs(batch, report)
            self._reference(batch)
            token_rewards = self._token_rewards(batch, scores, report)
            self._advantage(batch, scores, token_rewards, report)
        if self.recipe.algorithm == "ppo":
            self._update_critic(batch, report)
        self._update_actor(batch, report)
        self._sync()
        if self.done % VALIDATION_EVERY == 0:
            report["val-core/reverse/acc/mean@1"] = self._validate()
        report["timing_s/step"] = time.perf_counter() - started
        return report

    def _rollout(self, report) -> Batch:
        recipe, problems = self.recipe, data(self.recipe)
        first = (self.done - 1) * recipe.prompts
        rows = self.plant("data.rows", self.order[torch.arange(first, first + recipe.prompts) % recipe.task.prompts])
        rows = rows.repeat_interleave(recipe.group)
        prompts = self.plant("data.prompts", problems.prompts[rows]).to(self.device)
        answers = problems.answers[rows].to(self.device)
        sampling = self.plant("rollout.sampling", Sampling())
        with torch.no_grad():
            if self.replay is None:
                rng = torch.Generator().manual_seed(self.seed * 100_003 + self.done)
                shape = (recipe.task.room, len(rows), recipe.task.vocabulary)
                noise = torch.rand(shape, generator=rng).clamp(1e-9, 1 - 1e-7).to(self.device)
                responses, logs = generate(
                    self.engine, prompts, recipe.shape, self.engine_kernel, sampling=sampling, noise=noise
                )
            else:
                responses = self.replay.responses[self.done - 1].long().to(self.device)
                logs = self.replay.log_probs[self.done - 1].to(self.device)
            responses = self.plant("rollout.responses", responses)
            if self.score_again:
                logs = rescore(self.engine, prompts, responses, recipe.shape, self.engine_kernel, sampling=sampling)
        mask = response_mask(responses)
        logs = self.plant("rollout.log_probs", logs) * mask
        self.recorded.append((responses.to("cpu", torch.uint8), logs.cpu()))
        report |= metrics.lengths(prompts, mask)
        empty = torch.zeros_like(logs)
        return Batch(prompts, answers, responses, mask, logs, empty, empty, empty, empty, empty)

    def _reward(self, batch, report) -> torch.Tensor:
        scores = self.plant("reward.scores", score(batch.responses, batch.answers))
        report |= metrics.spread("critic/score", scores)
        return scores

    def log_probs(self, flat, batch, rows=slice(None), tweak=NO_TWEAK, temperature=1.0):
        """Log-probabilities and entropies of the response tokens under `flat`, with the trainer's kernels."""
        prompts, responses = batch.prompts[rows], batch.responses[rows]
        inputs = torch.cat([prompts, responses[:, :-1]], 1)
        logits, _ = forward(views(flat, self.recipe.shape), inputs, self.recipe.shape, self.kernel, tweak=tweak)
        return losses.token_log_probs(logits[:, prompts.shape[1] - 1 :] / temperature, responses)

    def _old_log_probs(self, batch, report) -> None:
        tweak, temperature = self.plant("old.tweak", NO_TWEAK), self.plant("old.temperature", 1.0)
        logs, entropy = self.log_probs(self.actor, batch, tweak=tweak, temperature=temperature)
        batch.old = self.plant("old.log_probs", logs) * batch.mask
        report["actor/entropy"] = float(losses.masked_mean(entropy, batch.mask))
        report |= metrics.mismatch(batch.rollout, batch.old, batch.mask)

    def _reference(self, batch) -> None:
        weights, tweak = self.plant("ref.weights", self.reference), self.plant("ref.tweak", NO_TWEAK)
        temperature = self.plant("ref.temperature", 1.0)
        logs, _ = self.log_probs(weights, batch, tweak=tweak, temperature=temperature)
        batch.reference = self.plant("ref.log_probs", logs) * batch.mask

    def values(self, flat, batch, rows=slice(None), tweak=NO_TWEAK):
        """The critic's value before each response token."""
        prompts, responses = batch.prompts[rows], batch.responses[rows]
        inputs = torch.cat([prompts, responses[:, :-1]], 1)
        outputs, _ = forward(
            views(flat, self.recipe.critic_shape), inputs, self.recipe.critic_shape, self.kernel, tweak=tweak
        )
        return outputs[:, prompts.shape[1] - 1 :, 0]

    def _token_rewards(self, batch, scores, report) -> torch.Tensor:
        last = batch.mask.sum(1).clamp_min(1) - 1
        rewards = torch.zeros_like(batch.old).scatter(1, last[:, None], scores[:, None])
        if self.recipe.algorithm == "ppo":
            coefficient = self.plant("config.kl_coef", self.recipe.kl_coef)
            penalty = (batch.old - batch.reference) * batch.mask
            rewards = rewards - coefficient * penalty
            report["actor/reward_kl_penalty"] = float((penalty.sum(1) / batch.mask.sum(1).clamp_min(1)).mean())
            report["actor/reward_kl_penalty_coeff"] = coefficient
        report |= metrics.spread("critic/rewards", rewards.sum(1))
        return rewards

    def _advantage(self, batch, scores, token_rewards, report) -> None:
        if self.recipe.algorithm == "ppo":
            values = self.values(
                self.plant("values.weights", self.critic), batch, tweak=self.plant("values.tweak", NO_TWEAK)
            )
            batch.values = self.plant("values.values", values) * batch.mask
            lam = self.plant("advantage.lam", 0.95)
            batch.advantages, batch.returns = losses.gae(token_rewards, batch.values, batch.mask, lam)
            report |= metrics.over_tokens("critic/values", batch.values, batch.mask)
            report["critic/vf_explained_var"] = metrics.explained_variance(batch.values, batch.returns, batch.mask)
        else:
            batch.advantages = losses.group_advantages(
                self.plant("advantage.scores", scores), batch.mask, self.recipe.group
            )
            batch.returns = batch.advantages
        batch.advantages = self.plant("advantage.advantages", batch.advantages)
        batch.returns = self.plant("advantage.returns", batch.returns)
        report |= metrics.over_tokens("critic/advantages", batch.advantages, batch.mask)
        report |= metrics.over_tokens("critic/returns", batch.returns, batch.mask)

    # ------------------------------------------------------------------ updates

    def _mini_batches(self) -> list[torch.Tensor]:
        return list(torch.arange(self.recipe.prompts * self.recipe.group).chunk(self.recipe.mini_batches))

    def _update_critic(self, batch, report) -> None:
        parts: list[dict[str, float]] = []
        norms: list[float] = []
        settings = self.plant("critic.adam", losses.AdamSettings(lr=self.recipe.critic_lr))
        tweak = self.plant("critic.tweak", NO_TWEAK)
        for rows in self._mini_batches():
            leaf = self.critic.clone().requires_grad_()
            tokens = batch.mask[rows].sum()
            for piece in rows.chunk(self.kernel.micro_batches):
                mask = batch.mask[piece]
                predicted = self.values(leaf, batch, piece, tweak)
                loss, clipped = losses.value_loss(predicted, batch.values[piece], batch.returns[piece], mask)
                loss = self.plant("critic.loss", loss)
                (loss * (mask.sum() / tokens)).backward()
                seen = float(losses.masked_mean(predicted.detach(), mask))
                parts.append(
                    {"critic/vf_loss": float(loss.detach()), "critic/vf_clipfrac": clipped, "critic/vpred_mean": seen}
                )
            gradient = self.plant("critic.gradient", leaf.grad)
            norms.append(self.critic_adam.step(self.critic, gradient, settings))
        self.critic = self.plant("critic.weights", self.critic)
        report |= metrics.mean_of(parts)
        report["critic/grad_norm"] = sum(norms) / len(norms)
        report["critic/lr"] = self.plant("config.critic_lr", self.recipe.critic_lr)

    def _update_actor(self, batch, report) -> None:
        recipe = self.recipe
        rate = self.plant("config.lr", recipe.lr)
        coefficient = self.plant("config.kl_coef", recipe.kl_coef)
        settings = self.plant("actor.adam", losses.AdamSettings(lr=rate))
        parts: list[dict[str, float]] = []
        norms: list[float] = []
        for rows in self._mini_batches():
            leaf = self.actor.clone().requires_grad_()
            self._backward(leaf, batch, rows, coefficient, parts)
            gradient = self.plant("actor.gradient", leaf.grad)
            norms.append(self.actor_adam.step(self.actor, gradient, settings))
        self.actor = self.plant("actor.weights", self.actor)
        for key in parts[0]:
            summed = key in {"actor/pg_loss", "actor/kl_loss"}
            report[key] = sum(part[key] for part in parts) / (recipe.mini_batches if summed else len(parts))
        report["actor/grad_norm"] = sum(norms) / len(norms)
        report["actor/lr"] = rate
        if recipe.algorithm == "grpo":
            report["actor/kl_coef"] = coefficient

    def _backward(self, leaf, batch, rows, coefficient, parts) -> None:
        """Add the gradient of one mini-batch to `leaf`, piece by piece, and what each piece measured to `parts`."""
        tweak = self.plant("actor.tweak", NO_TWEAK)
        tokens = batch.mask[rows].sum()
        for piece in rows.chunk(self.kernel.micro_batches):
            mask = self.plant("actor.mask", batch.mask[piece])
            new, _ = self.log_probs(leaf, batch, piece, tweak)
            policy = losses.policy_loss(new, batch.old[piece], batch.advantages[piece], mask)
            share = mask.sum() / tokens
            loss = policy.loss
            part = {
                "actor/pg_loss": float(policy.loss.detach() * share),
                "actor/ppo_kl": policy.kl,
                "actor/pg_clipfrac": policy.clipped,
                "actor/pg_clipfrac_lower": policy.clipped_low,
            }
            if self.recipe.algorithm == "grpo":
                kl = losses.masked_mean(losses.low_variance_kl(new, batch.reference[piece]), mask)
                part["actor/kl_loss"] = float(kl.detach() * share)
                loss = loss + coefficient * kl
            parts.append(part)
            heard = self.plant("actor.heard", torch.ones(1, device=mask.device))
            (self.plant("actor.loss", loss) * share * heard.squeeze()).backward()

    def _sync(self) -> None:
        self.history.append(self.actor.clone())
        self.engine = self.plant("rollout.weights", self.actor.clone())

    def _validate(self) -> float:
        """Greedy accuracy of the rollout engine on held-back problems: a clean probe of its weights."""
        problems = data(self.recipe)
        prompts, answers = problems.prompts[-64:].to(self.device), problems.answers[-64:].to(self.device)
        with torch.no_grad():
            sampling = self.plant("rollout.sampling", Sampling())
            responses, _ = generate(
                self.engine, prompts, self.recipe.shape, self.engine_kernel, sampling=sampling, noise=None
            )
        return float(score(responses, answers[:, : responses.shape[1]]).mean())


def recording(trainer: Trainer) -> Recording:
    responses, logs = zip(*trainer.recorded, strict=True)
    return Recording(torch.stack(responses), torch.stack(logs))
