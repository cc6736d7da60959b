# SPDX-License-Identifier: Apache-2.0
"""The process that writes the rollouts: its own bf16 copy of the weights, SDPA attention, a growing cache.

It differs from the trainer (fp32, eager attention) as a real inference engine does, so that the difference of the
two sides' probabilities is a real floor, about 1e-3. No verl module is imported at the top: Ray unpickles this
class in a fresh process, and an import of verl there would load the plugins in the middle of it.
"""

from __future__ import annotations

import asyncio
import zlib
from collections import Counter
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch

from sentinel.demo.kit import faults, rollout_faults

GATHER_SECONDS = 0.03
"""How long requests are collected into one batch after the first came."""
LARGEST_BATCH = 128


@dataclass
class Request:
    """One prompt that waits for its answer."""

    prompt: list[int]
    temperature: float
    limit: int
    """Most tokens to write."""
    generator: torch.Generator
    future: asyncio.Future[tuple[list[int], list[float]]]
    tokens: list[int] = field(default_factory=list)
    log_probs: list[float] = field(default_factory=list)

    def take(self, token: int, log_prob: float) -> None:
        """Add a token."""
        self.tokens.append(token)
        self.log_probs.append(log_prob)

    def finished(self, end: int) -> bool:
        """Whether the end token was written or the limit reached."""
        return bool(self.tokens) and (self.tokens[-1] == end or len(self.tokens) >= self.limit)


class RolloutServer:
    """A Ray actor behind verl's interface of a rollout server."""

    def __init__(self, model_path: str, seed: int, limit: int, device: str = "cpu") -> None:
        from transformers import AutoModelForCausalLM

        torch.set_num_threads(1)
        self.device = device
        self.model = AutoModelForCausalLM.from_pretrained(model_path, dtype=torch.bfloat16, attn_implementation="sdpa")
        self.model = self.model.to(device).eval()
        self.fault = faults.from_environment()
        self.delivery = rollout_faults.from_environment()
        if self.delivery is not None:
            self.delivery.begin(self.model)
        self.end = self.model.config.eos_token_id
        self.pad = self.model.config.pad_token_id or 0
        self.seed = seed
        self.limit = limit
        self.version: int | None = None
        self.asked: Counter[tuple[Any, ...]] = Counter()
        self.waiting: asyncio.Queue[Request] = asyncio.Queue()
        self.worker: asyncio.Task[None] | None = None

    async def set_weights(self, state: dict[str, torch.Tensor], version: int | None) -> list[str]:
        """Take the trainer's weights, rounded to bf16; the names that this model does not have come back."""
        own = self.model.state_dict()
        arrived = state if self.delivery is None else self.delivery.received(state, version)
        with torch.no_grad():
            for name, value in arrived.items():
                if name in own:
                    own[name].copy_(value)
        self.version = version
        return sorted(set(state) - set(own))

    async def generate(self, request_id: str, prompt_ids: Any, sampling_params: Any, **_: Any) -> Any:  # noqa: ARG002
        """Write an answer; verl awaits its TokenOutput."""
        from verl.workers.rollout.replica import TokenOutput

        if self.worker is None:
            self.worker = asyncio.get_running_loop().create_task(self._serve())
        request = self._request(list(prompt_ids), dict(sampling_params))
        await self.waiting.put(request)
        tokens, log_probs = await request.future
        return TokenOutput(
            token_ids=tokens,
            log_probs=log_probs,
            stop_reason="completed",
            extra_fields={"global_steps": self.version},
        )

    def _request(self, prompt: list[int], sampling: dict[str, Any]) -> Request:
        """A request with a generator of its own, so that an answer does not depend on the order of arrival."""
        key = (self.version, tuple(prompt))
        self.asked[key] += 1
        seed = zlib.crc32(repr((self.seed, key, self.asked[key])).encode())
        return Request(
            prompt=prompt,
            temperature=float(sampling.get("temperature", 1.0)),
            limit=int(sampling.get("max_tokens") or sampling.get("max_new_tokens") or self.limit),
            generator=torch.Generator().manual_seed(seed),
            future=asyncio.get_running_loop().create_future(),
        )

    async def _serve(self) -> None:
        while True:
            batch = [await self.waiting.get()]
            await asyncio.sleep(GATHER_SECONDS)
            while not self.waiting.empty() and len(batch) < LARGEST_BATCH:
                batch.append(self.waiting.get_nowait())
            try:
                with self._planted():
                    self._write(batch)
            except Exception as error:  # noqa: BLE001 - the agent loop would wait for ever
                for request in batch:
                    request.future.set_exception(error)
            else:
                for request in batch:
                    request.future.set_result((request.tokens, request.log_probs))

    def _planted(self) -> AbstractContextManager[None]:
        """The fault of this run, where it is one of the rollouts and its time has come; version N writes step N+1."""
        fault = self.fault
        if fault is None or fault.stage != faults.ROLLOUT or not fault.active((self.version or 0) + 1):
            return nullcontext()
        return faults.planted(self.model.get_submodule(fault.module), fault)

    @torch.no_grad()
    def _write(self, batch: list[Request]) -> None:
        """Write all answers of a batch, token by token, with one cache."""
        width = max(len(r.prompt) for r in batch)
        ids = torch.full((len(batch), width), self.pad)
        seen = torch.zeros((len(batch), width), dtype=torch.long)
        for row, request in enumerate(batch):
            ids[row, width - len(request.prompt) :] = torch.tensor(request.prompt)
            seen[row, width - len(request.prompt) :] = 1
        seen, current = seen.to(self.device), ids.to(self.device)
        cache = None
        while not all(r.finished(self.end) for r in batch):
            positions = (seen.cumsum(-1) - 1).clamp(min=0)[:, -current.shape[1] :]
            out = self.model(
                input_ids=current, attention_mask=seen, position_ids=positions, past_key_values=cache, use_cache=True
            )
            cache = out.past_key_values
            current = torch.tensor(
                [[_draw(r, row, self.end)] for r, row in zip(batch, out.logits[:, -1].float().cpu(), strict=True)],
                device=self.device,
            )
            seen = torch.cat([seen, seen.new_ones(len(batch), 1)], 1)

    async def wake_up(self, *_: Any, **__: Any) -> None:
        """Weights and cache never left."""

    async def sleep(self, *_: Any, **__: Any) -> None:
        """Nothing is released."""

    async def abort_all_requests(self, *_: Any, **__: Any) -> None:
        """Rollouts are synchronous: nothing is under way between steps."""

    async def resume_generation(self, *_: Any, **__: Any) -> None:
        """Nothing was stopped."""

    async def clear_kv_cache(self, *_: Any, **__: Any) -> None:
        """Every batch has a cache of its own."""

    async def release_kv_cache(self, *_: Any, **__: Any) -> None:
        """Every batch has a cache of its own."""

    async def resume_kv_cache(self, *_: Any, **__: Any) -> None:
        """Every batch has a cache of its own."""

    async def start_profile(self, *_: Any, **__: Any) -> None:
        """No profiler here."""

    async def stop_profile(self, *_: Any, **__: Any) -> None:
        """No profiler here."""


def _draw(request: Request, logits: torch.Tensor, end: int) -> int:
    """Sample the next token of a row (the most likely one at temperature 0), and note its log-probability."""
    if request.finished(end):
        return end
    greedy = request.temperature <= 0
    log_probs = torch.log_softmax(logits / (1.0 if greedy else request.temperature), -1)
    drawn = log_probs.argmax() if greedy else torch.multinomial(log_probs.exp(), 1, generator=request.generator)[0]
    token = int(drawn)
    request.take(token, float(log_probs[token]))
    return token
