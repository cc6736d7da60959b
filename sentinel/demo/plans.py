# SPDX-License-Identifier: Apache-2.0
"""The fault that is planted: read from STAGE:MODULE:KIND=SIZE@STEP, or drawn from a seed."""

from __future__ import annotations

import difflib
import math
import random
import re
from collections.abc import Sequence

from sentinel.demo.kit.faults import KINDS, STAGES, Fault
from sentinel.errors import SentinelError

FORM = re.compile(r"(?P<stage>[^:]*):(?P<module>[^:]*):(?P<kind>[^=:]*)=(?P<size>[^@]*)@(?P<step>.*)")
EXAMPLE = "actor_update:model.layers.1.mlp.down_proj:scale=1.1@4"
NUMERIC_KINDS = ("scale", "bias", "mask", "mantissa", "stale")
"""The kinds that are drawn: none of them makes a NaN."""
WHOLE = ("mantissa", "stale", "nan_grad")
"""Kinds whose size is a count."""


class PlanError(SentinelError):
    """A fault that cannot be planted as asked."""


def parse(text: str, *, modules: Sequence[str], steps: int) -> Fault:
    """The fault that `text` asks for, in a run of `steps` steps of a model with these modules.

    Raises:
        PlanError: the text has another form, or names what does not exist or could not be seen.
    """
    match = FORM.fullmatch(text.strip())
    if match is None:
        raise PlanError(f"--fault {text!r}: not of the form STAGE:MODULE:KIND=SIZE@STEP, e.g. {EXAMPLE}")
    stage = _one_of(match["stage"], tuple(STAGES), text, "stage")
    module = _one_of(match["module"], modules, text, "module")
    kind = _one_of(match["kind"], KINDS, text, "kind")
    fault = Fault(
        stage=stage,
        module=module,
        kind=kind,
        size=_number(match["size"], text, "size", whole=kind in WHOLE),
        step=int(_number(match["step"], text, "step", whole=True)),
    )
    problem = objection(fault, modules=modules, steps=steps)
    if problem:
        raise PlanError(f"--fault {text!r}: {problem}")
    return fault


def to_text(fault: Fault) -> str:
    """The form that `parse` reads."""
    return f"{fault.stage}:{fault.module}:{fault.kind}={fault.size:g}@{fault.step}"


def objection(fault: Fault, *, modules: Sequence[str], steps: int) -> str | None:
    """Why this fault cannot be planted, or could not be seen by anybody; None if it can."""
    if not 1 <= fault.step < steps:
        return f"the step must be 1 to {steps - 1}: the run has {steps} steps, and the one after the fault is dumped"
    if fault.kind == "scale" and fault.module == last_layer(modules):
        return "the norm that follows the last layer takes any factor out again: no number of the run would change"
    if fault.kind == "stale":
        return _objection_to_stale(fault, modules)
    if fault.kind == "nan_grad":
        return _objection_to_nan(fault, steps)
    fits, takes = {
        "scale": (fault.size > 0 and fault.size != 1, "a positive factor other than 1"),
        "bias": (fault.size != 0, "a share of the output's root mean square other than 0"),
        "mask": (0 < fault.size <= 1, "the share of features that is zeroed, above 0 and up to 1"),
        "mantissa": (1 <= fault.size <= 23, "the number of dropped bits, 1 to 23"),
    }[fault.kind]
    return None if fits else f"{fault.kind} takes {takes}"


def _objection_to_stale(fault: Fault, modules: Sequence[str]) -> str | None:
    if fault.stage == "ref_compute_log_prob":
        return "the reference's weights never change, so older ones are the same"
    if not has_own_weights(fault.module, modules):
        return f"stale needs weights, and {fault.module} has none of its own; name the module that has"
    if not 1 <= fault.size < fault.step:
        return f"stale takes the age of the weights in steps, 1 to {fault.step - 1} at step {fault.step}"
    return None


def has_own_weights(module: str, modules: Sequence[str]) -> bool:
    """Whether a module holds parameters itself: neither a container nor a function without any."""
    container = any(other.startswith(f"{module}.") for other in modules)
    return not container and not module.endswith(("act_fn", "rotary_emb"))


def _objection_to_nan(fault: Fault, steps: int) -> str | None:
    if fault.stage != "actor_update":
        return "nan_grad needs a gradient: only actor_update has one"
    if not 1 <= fault.size <= steps - fault.step:
        return f"nan_grad takes the number of steps, 1 to {steps - fault.step} at step {fault.step}"
    return None


def draw(seed: int, count: int, *, modules: Sequence[str], steps: int) -> list[Fault]:
    """Numeric faults drawn from the seed; the first n of a longer draw are those of a shorter one."""
    rng = random.Random(f"sentinel demo {seed}")
    drawn: list[Fault] = []
    while len(drawn) < count:
        kind = rng.choice(NUMERIC_KINDS)
        fault = Fault(
            stage=rng.choice(tuple(STAGES)),
            module=rng.choice(tuple(modules)),
            kind=kind,
            size=_drawn_size(rng, kind),
            step=rng.randint(4, steps - 2),
        )
        if objection(fault, modules=modules, steps=steps) is None:
            drawn.append(fault)
    return drawn


def _drawn_size(rng: random.Random, kind: str) -> float:
    """A size above the floor of two kernels, and small enough to be worth finding."""
    if kind == "scale":
        return round(math.exp(rng.uniform(math.log(1.02), math.log(2.0))), 3)
    if kind == "bias":
        return round(rng.uniform(0.05, 0.5), 3)
    if kind == "mask":
        return round(rng.uniform(0.05, 0.4), 3)
    if kind == "mantissa":
        return rng.randint(14, 18)
    return rng.randint(2, 3)


def last_layer(modules: Sequence[str]) -> str | None:
    """Path of the last decoder layer."""
    layers = [m for m in modules if re.fullmatch(r".*\.layers\.\d+", m)]
    return max(layers, key=lambda name: int(name.rpartition(".")[2]), default=None)


def _one_of(given: str, known: Sequence[str], text: str, what: str) -> str:
    given = given.strip()
    if given in known:
        return given
    near = difflib.get_close_matches(given, known, n=1, cutoff=0.3)
    hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(known[:8])}"
    raise PlanError(f"--fault {text!r}: no {what} {given!r}; {hint}")


def _number(given: str, text: str, what: str, *, whole: bool) -> float:
    try:
        value = float(given)
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or (whole and value != int(value)):
        raise PlanError(f"--fault {text!r}: {what} {given!r} is not a {'whole ' if whole else ''}number")
    return value
