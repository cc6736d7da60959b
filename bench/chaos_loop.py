# SPDX-License-Identifier: Apache-2.0
"""A real training loop without verl and Ray, with everything around it going wrong: seconds instead of minutes.

`python -m bench.chaos_loop --steps 30 --seed 1` trains the example's Qwen2 with AdamW twice, plain and watched; the watched one is dumped
by msprobe at nearly every step, its daemon is the real one, in this process. Losses, gradient norms and weights must be the same bits.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from bench.chaos_training import BUNDLE, EXAMPLES, WAIT_SECONDS, small_disk

ROWS, WIDTH = 4, 24
STEP_SECONDS = 4.0
OUTSIDE = (
    "daemon fails",
    "daemon hangs for 0.3 s",
    "disk full",
    "baseline corrupted",
    "garbage sent to the daemon",
    "steps sent twice",
)


class Daemon:
    """The real daemon's judgement in this process, with bad days; what a trainer's link calls."""

    def __init__(self, folder: Path, disk: Path, seed: int) -> None:
        from sentinel.daemon.house import House

        self.disk, self.rng, self.done = disk, random.Random(seed), Counter()
        self.baseline = folder / BUNDLE
        self.baseline.write_bytes((EXAMPLES / BUNDLE).read_bytes())
        settings = {"home": str(disk / "home"), "baseline": str(self.baseline), "trainer": {"min_free_bytes": 1}}
        self.house = House(json.dumps(settings), str(folder / "sentinel.yaml"), serve=False, only="chaos")

    def send(self, records: list[dict]) -> dict:
        """Answer a report, or not."""
        from bench import chaos_plugin

        steps = [record["step"] for record in records if record.get("t") == "step"]
        if not steps or steps[-1] < 2:
            return self._report(records)
        step = steps[-1]
        self._trouble(OUTSIDE[step % len(OUTSIDE)], records)
        kind, reply = chaos_plugin.spoilt(self._report(records), step)
        chaos_plugin.note(kind)
        return {} if reply == "late" else reply

    def _report(self, records: list[dict]) -> dict:
        return dict(self.house.watchdog.report({"v": 1, "run": "chaos", "session": "s", "records": records}))

    def _trouble(self, kind: str, records: list[dict]) -> None:
        self.done[kind] += 1
        filler = self.disk / "filler"
        filler.unlink(missing_ok=True)
        if kind == "daemon fails":
            raise OSError("chaos")
        if kind == "daemon hangs for 0.3 s":
            time.sleep(0.3)
        elif kind == "disk full":
            with contextlib.suppress(OSError), filler.open("wb") as file:
                while True:
                    file.write(b"\0" * 65536)
        elif kind == "baseline corrupted":
            with self.baseline.open("r+b") as file:
                file.seek(self.rng.randrange(self.baseline.stat().st_size))
                file.write(self.rng.randbytes(3000))
        elif kind == "garbage sent to the daemon":
            for message in (None, [], {"v": 7}, {"v": 1, "run": "../x", "session": 1, "records": [{"t": "step"}]}):
                with contextlib.suppress(Exception):
                    self.house.watchdog.report(message)
        else:
            self._report(records)

    def close(self) -> None:
        self.house.close()


def train(steps: int, watch: Callable | None) -> tuple[list[str], str]:
    """Losses and gradient norms as exact text, and a digest of the weights."""
    import torch
    from transformers import AutoModelForCausalLM

    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_pretrained(
        EXAMPLES / "assets" / "model", dtype=torch.float32, attn_implementation="eager"
    )
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    source = torch.Generator().manual_seed(1)
    loop = watch(model) if watch else None
    said = []
    for step in range(1, steps + 1):
        ids = torch.randint(0, model.config.vocab_size, (ROWS, WIDTH), generator=source)
        if loop:
            loop.begin(step)
        loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        if loop:
            loop.end()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        said.append(f"{loss.item().hex()} {norm.item().hex()}")
        if loop:
            loop.log(step, {"actor/pg_loss": loss.item(), "actor/grad_norm": norm.item()})
            if step % 4:
                settle(loop.session._daemon)  # and now and then the next boundary comes before the answer
    if loop:
        loop.close()
    digest = hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in model.parameters())).hexdigest()
    return said, digest


def settle(emitter, seconds: float = STEP_SECONDS) -> None:
    """Let the background thread do its work, as the rest of a real step does; a step of this loop takes 20 ms."""
    until = time.monotonic() + seconds
    while emitter._acked_number < emitter.last_number and time.monotonic() < until:
        time.sleep(0.01)


def disturbed(steps: int, seed: int, folder: Path) -> dict:
    """One plain and one watched loop, compared."""
    noted = folder / "noted"
    noted.mkdir(parents=True)
    os.environ["CHAOS_FOLDER"] = str(noted)
    from bench import chaos_plugin
    from sentinel.trainer import emitter
    from sentinel.trainer import loop as loops

    plain = train(steps, None)
    chaos_plugin.install_in_msprobe()
    with small_disk(folder / "disk") as mounted:
        daemon = Daemon(folder, folder / "disk", seed)
        loops.ClusterLink.send = lambda _, records: daemon.send(records)  # the way to the daemon, without Ray
        failure, watched, waits = "", ([], ""), chaos_plugin.Times()
        waits.timed(emitter.Emitter, "wait")
        try:
            watched = train(steps, lambda model: loops.Loop(model, "chaos"))
        except Exception as error:
            failure = f"{type(error).__name__}: {error}"
        daemon.close()
    inside = Counter(
        json.loads(line)["kind"] for path in noted.glob("injected-*.jsonl") for line in path.read_text().splitlines()
    )
    differing = [f"step {n}" for n, (a, b) in enumerate(zip(plain[0], watched[0], strict=False), 1) if a != b]
    if plain[1] != watched[1]:
        differing.append("weights")
    injected = dict(sorted((inside + daemon.done).items()))
    return {
        "kind": "loop", "seed": seed, "failure": failure, "steps": len(watched[0]), "injected": injected,
        "injections": sum(injected.values()), "differing": differing[:20], "differences": len(differing),
        "worst_wait": max((s for _, s in waits.rows), default=None), "waits": len(waits.rows), "small_disk": mounted,
    }  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.chaos_loop", description=__doc__)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path, help="add the result to this file")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="sentinel-chaos-") as folder:
        result = disturbed(args.steps, args.seed, Path(folder))
    print(json.dumps(result))
    if args.json:
        old = json.loads(args.json.read_text()) if args.json.exists() else []
        args.json.write_text(json.dumps([*old, result], indent=1) + "\n", encoding="utf-8")
    return 1 if result["failure"] or result["differences"] or result["worst_wait"] > WAIT_SECONDS + 0.25 else 0


if __name__ == "__main__":
    sys.exit(main())
