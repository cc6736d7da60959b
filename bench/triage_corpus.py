# SPDX-License-Identifier: Apache-2.0
"""Fault sets for triage: pairs of real msprobe dumps whose faulty module, kind and size are known.

    python -m bench.triage_corpus build OUT [--plans dense-fp32,...]     every dump and OUT/index.json, on this machine
    python -m bench.triage_corpus golden OUT --device cuda               the golden dumps alone, on other hardware
    python -m bench.triage_corpus clean OUT                              clean pairs of other weights, for calibration

Each plan (model and precision) is dumped by a process of its own, because msprobe's debugger is one a process. Weights come from
numpy, so a golden dump made on another machine belongs to the same model.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

TUNING = int(os.environ.get("TRIAGE_TUNING") or 0)
SCORED, OTHER = (1, 0) if TUNING else (0, 1)
CALIBRATED = (2, 3, 4, 5, 6)
"""Seeds of the weights: of the pairs with faults, and of the clean pair that shows how far two kernels part.

CALIBRATED: seeds of the weights of clean pairs that calibrate. The set that tolerances are tuned on (`build --tuning 1`) has other weights, rows and faults than the one that is scored.
"""


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("build", "golden", "clean", "one"))
    parser.add_argument("out", type=Path)
    parser.add_argument("--plans", default="")
    parser.add_argument("--device", default="cpu")
    parser.add_argument(
        "--tuning", type=int, default=0, metavar="N", help="the Nth set for tuning, which is never scored"
    )
    args = parser.parse_args(argv)
    if args.what == "one":
        _one_plan(args.plans, args.out, args.device)
        return 0
    from bench.triage_models import HALF_PLANS, PLANS

    plans = (*PLANS, *HALF_PLANS) if args.what == "clean" else PLANS
    wanted = args.plans.split(",") if args.plans else [plan.name for plan in plans]
    args.out.mkdir(parents=True, exist_ok=True)
    index = []
    for name in wanted:
        folder = args.out / name
        shutil.rmtree(folder, ignore_errors=True)
        environment = {
            **os.environ,
            "MSPROBE_LOG_LEVEL": "4",
            "TRIAGE_MADE": args.what,
            "TRIAGE_TUNING": str(args.tuning or TUNING or ""),
        }
        command = [sys.executable, "-W", "ignore", "-m", "bench.triage_corpus", "one", str(folder), "--plans", name]
        subprocess.run([*command, "--device", args.device], check=True, env=environment, stdout=subprocess.DEVNULL)
        index += json.loads((folder / "pairs.json").read_text())
    (args.out / "index.json").write_text(json.dumps(index, indent=1))
    print(f"{len(index)} pairs in {args.out}")
    return 0


def _one_plan(name: str, out: Path, device: str) -> None:
    from bench.triage_faults import Fault
    from bench.triage_models import HALF_PLANS, PLANS

    plan = next(plan for plan in (*PLANS, *HALF_PLANS) if plan.name == name)
    studio = Studio(plan, out, device)
    if os.environ["TRIAGE_MADE"] == "clean":
        _clean_pairs(studio)
        return
    for seed in (SCORED, OTHER):
        studio.dump(f"golden{seed}", seed=seed)
    pairs: list[dict] = []
    if os.environ["TRIAGE_MADE"] != "golden":
        for noise in studio.noises:
            for seed in (SCORED, OTHER):
                studio.dump(f"clean{seed}-{noise}", seed=seed, noise=noise)
            pairs.append(_pair(plan, f"clean{SCORED}-{noise}", None, noise, "plain"))
        for structure in STRUCTURES:
            studio.dump(f"clean-{structure}", structure=structure)
            pairs.append(_pair(plan, f"clean-{structure}", None, "same", structure))
        draw = random.Random(f"tuning {TUNING} {name}" if TUNING else name)
        for number, planned in enumerate(studio.faults(draw)):
            fault = Fault(*planned)
            noise = studio.noises[number % len(studio.noises)]
            structure = "plain" if number % 4 else STRUCTURES[number // 4 % len(STRUCTURES)]
            noise = "same" if structure != "plain" else noise
            studio.dump(f"fault{number}", noise=noise, fault=fault, structure=structure)
            pairs.append(_pair(plan, f"fault{number}", fault, noise, structure))
    (out / "pairs.json").write_text(json.dumps(pairs))


def _clean_pairs(studio: Studio) -> None:
    pairs = []
    for seed in CALIBRATED:
        studio.dump(f"golden{seed}", seed=seed)
        for noise in studio.noises[1:]:
            studio.dump(f"clean{seed}-{noise}", seed=seed, noise=noise)
            pair = _pair(studio.plan, f"clean{seed}-{noise}", None, noise, "plain")
            pairs.append({**pair, "golden": f"{studio.plan.name}/golden{seed}"})
    (studio.out / "pairs.json").write_text(json.dumps(pairs))


STRUCTURES = ("renamed", "skipped", "recomputed", "fused", "repeated")


def _pair(plan, target: str, fault, noise: str, structure: str) -> dict:
    golden = "golden-repeated" if structure == "repeated" else f"golden{SCORED}"
    clean = f"clean-{structure}" if structure != "plain" else f"clean{SCORED}-{noise}"
    return {
        "plan": plan.name,
        "dtype": plan.dtype,
        "family": plan.family,
        "target": f"{plan.name}/{target}",
        "golden": f"{plan.name}/{golden}",
        "twin": f"{plan.name}/{clean}",
        "calibration": [f"{plan.name}/clean{OTHER}-{noise}", f"{plan.name}/golden{OTHER}"],
        "noise": noise,
        "structure": structure,
        "fault": None if fault is None else {**asdict(fault), "direction": fault.direction},
    }


class Studio:
    """Dumps of one plan, made by one msprobe debugger."""

    def __init__(
        self,
        plan,
        out: Path,
        device: str,
        *,
        level: str = "L0",
        task: str = "statistics",
        mode: str = "statistics",
        layers: int = 4,
    ) -> None:
        import torch

        torch.set_num_threads(1)
        torch.backends.cuda.matmul.allow_tf32 = bool(os.environ.get("TRIAGE_TF32"))
        self.plan, self.out, self.device, self.layers = plan, out, device, layers
        self._raw = out / "raw"
        self._raw.mkdir(parents=True)
        self._count = 0
        self._models: dict[int, torch.nn.Module] = {}
        self._process_group()
        from msprobe.pytorch import PrecisionDebugger

        choice = {"scope": [], "list": [], "data_mode": ["all"], "summary_mode": mode}
        settings = {"task": task, "dump_path": str(self._raw), "rank": [], "step": [], "level": level, task: choice}
        config = out / "config.json"
        config.write_text(json.dumps(settings))
        self._debugger = PrecisionDebugger(config_path=str(config))
        self.noises = ("same", "kernel", "wide", "sdpa", "moved") + (("tf32",) if plan.dtype == "float32" else ())

    def _process_group(self) -> None:
        import torch.distributed as dist

        store = dist.HashStore()
        dist.init_process_group("gloo", store=store, rank=0, world_size=1)

    def model(self, seed: int):
        from bench.triage_models import build

        if seed not in self._models:
            self._models[seed] = build(self.plan, seed, self.device, layers=self.layers)
        return self._models[seed]

    def dump(
        self,
        name: str,
        *,
        seed: int = SCORED,
        noise: str = "same",
        fault=None,
        structure: str = "plain",
        other_golden: bool = True,
    ) -> None:
        """Dump one step: forward and backward."""
        from bench.triage_faults import noise as noisy
        from bench.triage_faults import planted
        from bench.triage_models import batch, loss

        if (
            other_golden
            and structure == "repeated"
            and not (self.out / "golden-repeated").exists()
            and name != "golden-repeated"
        ):
            self.dump("golden-repeated", structure="repeated")
        model = self.model(seed)
        model.zero_grad(set_to_none=True)
        if structure == "recomputed":
            model.gradient_checkpointing_enable({"use_reentrant": False})
        with noisy(model, noise), planted(model, fault):
            self._debugger.start(model)
            for part in range(2 if structure == "repeated" else 1):
                loss(model, batch(seed + 10 * part, self.device)).backward()
            self._debugger.stop()
        self._debugger.step()
        if structure == "recomputed":
            model.gradient_checkpointing_disable()
        source = self._raw / f"step{self._count}"
        self._count += 1
        shutil.move(source, self.out / name)
        restructure(self.out / name / "rank0", structure)

    def faults(self, draw: random.Random) -> list[tuple[str, str, float]]:
        """The plan's faults; sizes from plain to at the edge of what a dump can show."""
        return _gpt2_faults(draw) if self.plan.family == "gpt2" else _qwen_faults(self.plan.family, draw)


def restructure(folder: Path, structure: str) -> None:
    """Make the dump look like one of another wrapper, another msprobe surrounding, or fused kernels."""
    if structure not in {"renamed", "skipped", "fused"}:
        return
    for file in ("dump.json", "construct.json"):
        path = folder / file
        found = json.loads(path.read_text())
        if file == "dump.json":
            found["data"] = _changed(found["data"], structure)
        else:
            found = {k: v and _rename(v, structure) for k, v in _changed(found, structure).items()}
        path.write_text(json.dumps(found))


def _changed(entries: dict, structure: str) -> dict:
    kept = {}
    for name, entry in entries.items():
        path = name.split(".")
        if structure == "skipped" and ".".join(path[1:-3]) in {"model", "lm_head", "transformer"}:
            continue
        if structure == "fused" and ".act" in name:
            continue
        kept[_rename(name, structure)] = entry
    return kept


def _rename(name: str, structure: str) -> str:
    if structure != "renamed" or not name.startswith("Module."):
        return name
    path = name.split(".")
    path[-3] = f"FSDP{path[-3]}"
    for place, part in enumerate(path):
        if part.isdigit() and place < len(path) - 1:
            path[place] = f"{part}._fsdp_wrapped_module"
            break
    return ".".join(["Module._fsdp_wrapped_module", *path[1:]])


def _qwen_faults(family: str, draw: random.Random) -> list[tuple[str, str, float]]:
    def at(tail: str) -> str:
        return f"model.layers.{draw.randrange(4)}.{tail}"

    mlp = {"moe": "mlp.shared_expert", "experts": f"mlp.experts.{draw.randrange(6)}"}.get(family, "mlp")
    linear = [
        "self_attn.q_proj",
        "self_attn.k_proj",
        "self_attn.v_proj",
        "self_attn.o_proj",
        f"{mlp}.up_proj",
        f"{mlp}.down_proj",
    ]
    leaves = [*linear, "input_layernorm", "post_attention_layernorm", f"{mlp}.act_fn"]
    whole = ["self_attn", "mlp"]
    faults: list[tuple[str, str, float]] = []
    for size in (2.0, 1.2, 1.05, 1.02, 1.01, 1.005):
        faults += [(at(draw.choice(leaves)), "scale", size), (at(draw.choice([*whole, *leaves])), "scale", size)]
    for size in (0.2, 0.05, 0.02):
        faults += [(at(draw.choice(leaves)), "bias", size), (at(draw.choice(whole)), "bias", size)]
    for size in (0.25, 0.1, 0.02):
        faults.append((at(draw.choice(leaves)), "mask", size))
    for size in (20, 18, 16, 14):
        faults.append((at(draw.choice(linear)), "mantissa", size))
    for size in (0.1, 0.03, 0.01):
        faults.append((at(draw.choice(leaves)), "noise", size))
    faults += [
        (at("self_attn"), "scaling", 1.3),
        (at("self_attn"), "scaling", 1.05),
        (at("input_layernorm"), "eps", 1e4),
    ]
    faults += [(at(draw.choice(leaves)), "row", 2.0), ("model.norm", "scale", 1.05), ("lm_head", "scale", 1.05)]
    faults += [("model.embed_tokens", "scale", 1.05), (f"model.layers.{draw.randrange(4)}", "scale", 1.05)]
    for size in (2.0, 1.1, 1.03, 1.01):
        faults += [
            (at(draw.choice(leaves)), "grad_scale", size),
            (at(draw.choice([*whole, *leaves])), "grad_scale", size),
        ]
    faults += [(at(draw.choice(leaves)), "grad_mask", 0.1), (at(draw.choice(leaves)), "grad_noise", 0.1)]
    faults += [(at(draw.choice(linear)), "weight_scale", size) for size in (1.1, 1.01, 1.002)]
    faults += [(at(draw.choice(linear)), "weight_round", 17), (at(draw.choice(linear)), "weight_rows", 2)]
    faults += [("model.embed_tokens", "weight_scale", 1.02), ("model.norm", "weight_scale", 1.02)]
    for kind in ("nan", "inf", "ninf", "grad_nan", "grad_inf"):
        faults += [(at(draw.choice(leaves)), kind, 1), (at(draw.choice(whole)), kind, 1)]
    faults += [(at(draw.choice(linear)), "weight_nan", 1), ("lm_head", "grad_nan", 1), ("model.norm", "grad_nan", 1)]
    return faults


def _gpt2_faults(draw: random.Random) -> list[tuple[str, str, float]]:
    def at(tail: str) -> str:
        return f"transformer.h.{draw.randrange(4)}.{tail}"

    linear = ["attn.c_attn", "attn.c_proj", "mlp.c_fc", "mlp.c_proj"]
    leaves = [*linear, "ln_1", "ln_2", "mlp.act"]
    faults: list[tuple[str, str, float]] = []
    for size in (2.0, 1.1, 1.02, 1.01):
        faults += [(at(draw.choice(leaves)), "scale", size), (at(draw.choice(["attn", "mlp", *leaves])), "scale", size)]
    for size in (0.1, 0.02):
        faults.append((at(draw.choice(leaves)), "bias", size))
    faults += [(at(draw.choice(leaves)), "mask", 0.1), (at(draw.choice(linear)), "mantissa", 16)]
    faults += [
        ("transformer.wte", "scale", 1.05),
        ("transformer.ln_f", "scale", 1.05),
        ("transformer.wpe", "scale", 1.1),
    ]
    for size in (2.0, 1.05, 1.02):
        faults += [
            (at(draw.choice(leaves)), "grad_scale", size),
            (at(draw.choice(["attn", "mlp"])), "grad_scale", size),
        ]
    faults += [(at(draw.choice(linear)), "weight_scale", size) for size in (1.1, 1.01)]
    for kind in ("nan", "inf", "grad_nan"):
        faults += [(at(draw.choice(leaves)), kind, 1), (at(draw.choice(["attn", "mlp"])), kind, 1)]
    return faults


if __name__ == "__main__":
    sys.exit(main())
