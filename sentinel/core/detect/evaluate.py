# SPDX-License-Identifier: Apache-2.0
"""The score of a detector on runs whose fault, onset and stage are known.

Pure arithmetic on outcomes; who made the alarms (the engine or a reference detector) makes no difference. Definitions:

- Strength of a fault is the corpus's: strong above 10, medium 3 to 10, subtle 1 to 3, invisible below 1.
- A fault is found by the first alarm at or after its onset. Alarms before the onset never find it; they are counted apart.
- Delay is counted in steps from the first step at which the fault is visible (strength of that step 1 or more); a miss
  has infinite delay. An alarm between onset and that step has delay 0.
- A false alarm is any alarm on a clean run, whatever its metric. The rate is per 1,000 steps of clean runs.
- Stage top-1 (top-2) is the share of found faults whose stage is the first (one of the first two) that the alarm named.

Intervals hold 95 %: Wilson for shares, exact Poisson for rates, order statistics for quantiles of delay. They take runs as
independent, which runs of one group (same base, same seeds) are only in part.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

STRENGTHS = ("strong", "medium", "subtle", "invisible")
REGIMES = ("replayed", "free")
Z95 = 1.959963984540054
WITHIN = (0, 1, 3, 10)
"""Delays, in steps, at which detectors are compared."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlantedFault:
    """What is known of a fault."""

    kind: str
    stage: str
    magnitude: str
    """Name of its size in the corpus."""
    onset: int
    strength: float
    visible_from: int | None
    """First step that shows it in its stage's own metrics; None where none does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Alarm:
    """One incident, or one episode of a detector."""

    step: int
    stages: tuple[str, ...] = ()
    """Named stages, most likely first; empty where the detector names none."""
    because: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a detector said of one run."""

    run: str
    regime: str
    steps: int
    fault: PlantedFault | None
    alarms: tuple[Alarm, ...]
    closest: str = ""
    """For a missed fault: how near the detector came, in a sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A value with its 95 % interval; NaN where there was nothing to count."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """The score in one regime at one strength; the field names are the command line's."""

    regime: str
    strength: str
    faults: int
    clean_steps: int
    recall: Estimate
    delay_median: Estimate
    delay_p95: Estimate
    false_alarms: Estimate
    early_alarms: int
    """Alarms before the onset of this row's faults."""
    stage_top1: Estimate | None
    stage_top2: Estimate | None
    within: tuple[float, ...]
    """Share of the faults found with a delay of at most 0, 1, 3, 10 steps."""


def strength_class(strength: float) -> str:
    """The name of a strength; NaN is invisible."""
    for name, least in (("strong", 10.0), ("medium", 3.0), ("subtle", 1.0)):
        if strength > least or (name == "subtle" and strength >= least):
            return name
    return "invisible"


def finding_alarm(outcome: Outcome) -> Alarm | None:
    """The alarm that found the fault."""
    fault = outcome.fault
    if fault is None:
        return None
    later = [alarm for alarm in outcome.alarms if alarm.step >= fault.onset]
    return min(later, key=lambda alarm: alarm.step, default=None)


def delay(outcome: Outcome) -> float:
    """Steps from the first visible step to the alarm; infinite for a miss."""
    alarm = finding_alarm(outcome)
    if alarm is None or outcome.fault is None:
        return math.inf
    return float(max(0, alarm.step - (outcome.fault.visible_from or outcome.fault.onset)))


def score(outcomes: Iterable[Outcome]) -> tuple[Row, ...]:
    """One row per regime and strength that occurs, in the order of REGIMES and STRENGTHS."""
    known = tuple(outcomes)
    rows = []
    for regime in REGIMES:
        clean = [outcome for outcome in known if outcome.regime == regime and outcome.fault is None]
        faulty = [outcome for outcome in known if outcome.regime == regime and outcome.fault is not None]
        for strength in STRENGTHS:
            hit = [
                outcome for outcome in faulty if outcome.fault and strength_class(outcome.fault.strength) == strength
            ]
            if hit:
                rows.append(_row(regime, strength, hit, clean))
    return tuple(rows)


def _row(regime: str, strength: str, faulty: Sequence[Outcome], clean: Sequence[Outcome]) -> Row:
    delays = sorted(delay(outcome) for outcome in faulty)
    found = [outcome for outcome in faulty if finding_alarm(outcome) is not None]
    steps = sum(outcome.steps for outcome in clean)
    named = any(alarm.stages for outcome in faulty for alarm in outcome.alarms)
    return Row(
        regime=regime,
        strength=strength,
        faults=len(faulty),
        clean_steps=steps,
        recall=share(len(found), len(faulty)),
        delay_median=quantile(delays, 0.5),
        delay_p95=quantile(delays, 0.95),
        false_alarms=rate(sum(len(outcome.alarms) for outcome in clean), steps),
        early_alarms=sum(_early(outcome) for outcome in faulty),
        stage_top1=share(sum(_named(outcome, 1) for outcome in found), len(found)) if named else None,
        stage_top2=share(sum(_named(outcome, 2) for outcome in found), len(found)) if named else None,
        within=tuple(sum(one <= limit for one in delays) / len(delays) for limit in WITHIN),
    )


def _early(outcome: Outcome) -> int:
    return sum(outcome.fault is not None and alarm.step < outcome.fault.onset for alarm in outcome.alarms)


def _named(outcome: Outcome, depth: int) -> bool:
    alarm = finding_alarm(outcome)
    return alarm is not None and outcome.fault is not None and outcome.fault.stage in alarm.stages[:depth]


# --------------------------------------------------------------------------- estimates


def share(hits: int, of: int) -> Estimate:
    """Hits in `of` trials, with Wilson's interval."""
    if of == 0:
        return Estimate(value=math.nan, low=0.0, high=1.0)
    part = hits / of
    weight = Z95**2 / of
    centre = (part + weight / 2) / (1 + weight)
    half = Z95 * math.sqrt(part * (1 - part) / of + weight / (4 * of)) / (1 + weight)
    # At the ends the interval touches 0 or 1 exactly; floating point would leave 1e-17.
    low = 0.0 if hits == 0 else max(0.0, centre - half)
    high = 1.0 if hits == of else min(1.0, centre + half)
    return Estimate(value=part, low=low, high=high)


def rate(events: int, steps: int) -> Estimate:
    """Events per 1,000 steps, with the exact Poisson interval."""
    if steps == 0:
        return Estimate(value=math.nan, low=0.0, high=math.inf)
    low = 0.0 if events == 0 else _poisson_mean(events - 1, 0.975)
    high = _poisson_mean(events, 0.025)
    return Estimate(value=1000 * events / steps, low=1000 * low / steps, high=1000 * high / steps)


def _poisson_mean(events: int, at_most: float) -> float:
    """The mean at which `events` or fewer have the probability `at_most`; by bisection."""
    low, high = 0.0, 10.0 + 3.0 * events
    while _poisson_cumulative(events, high) > at_most:
        high *= 2
    for _ in range(80):
        middle = (low + high) / 2
        if _poisson_cumulative(events, middle) > at_most:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def _poisson_cumulative(events: int, mean: float) -> float:
    if mean <= 0:
        return 1.0
    logs = [count * math.log(mean) - mean - math.lgamma(count + 1) for count in range(events + 1)]
    top = max(logs)
    return min(1.0, math.exp(top) * math.fsum(math.exp(log - top) for log in logs))


def quantile(ordered: Sequence[float], level: float) -> Estimate:
    """The smallest value that `level` of the sample does not exceed, with the interval between two order statistics.

    Infinite values (misses) take part; where misses reach the level, the quantile is infinite.
    """
    count = len(ordered)
    if count == 0:
        return Estimate(value=math.nan, low=0.0, high=math.inf)
    spread = Z95 * math.sqrt(count * level * (1 - level))
    low = max(0, math.floor(count * level - spread) - 1)
    high = math.ceil(count * level + spread)
    # Beyond the largest observation nothing is known.
    return Estimate(
        value=ordered[max(0, math.ceil(count * level) - 1)],
        low=ordered[low],
        high=ordered[high] if high < count else math.inf,
    )


def row_to_plain(row: Row) -> dict[str, object]:
    """A row in the form of the command line."""

    def plain(estimate: Estimate | None) -> dict[str, float] | None:
        return None if estimate is None else {"value": estimate.value, "low": estimate.low, "high": estimate.high}

    return {
        "regime": row.regime,
        "strength": row.strength,
        "faults": row.faults,
        "clean_steps": row.clean_steps,
        "recall": plain(row.recall),
        "delay": {"median": plain(row.delay_median), "p95": plain(row.delay_p95)},
        "false_alarms": plain(row.false_alarms),
        "stage_top1": plain(row.stage_top1),
        "stage_top2": plain(row.stage_top2),
        "early_alarms": row.early_alarms,
        "found_within": {str(limit): part for limit, part in zip(WITHIN, row.within, strict=True)},
    }
