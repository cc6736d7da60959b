# SPDX-License-Identifier: Apache-2.0
"""Is this incident worth a dump: of which stages, how deep, over which steps, within which budget.

A dump slows the steps it covers (L0 about 1.6 to 4 times), so it is narrow (two stages), short (two steps), rare (cool-down) and
bounded for the incident, the day and the run; what is not done is said, with the reason, in the incident.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from sentinel.core.capture.book import Book
from sentinel.core.capture.cost import LEAST_TRAINING_SECONDS, Bound, Cost, of_today, over_budget, predicted, spent
from sentinel.core.capture.escalation import FIRST, RUNGS, UPDATES
from sentinel.records import DUMPABLE_STAGES, CaptureOrder, CaptureReceipt, Incident

RERUNNABLE = frozenset({"actor_compute_log_prob", "ref_compute_log_prob", "compute_values", "compute_rm_score"})
"""Stages without side effects: they can be run again on the same inputs."""
ACTOR_STAGES = ("actor_compute_log_prob", "actor_update", "ref_compute_log_prob")
"""Where to look when the suspects are cleared: every run has these."""
NO_DUMP_HELPS = {
    "mismatch": "inputs or settings differ: a dump would show other numbers, not a fault",
    "vanished": "a metric is missing: a dump shows tensors, not reports",
    "silence": "the run is silent: no step is coming that could be dumped",
}


@dataclass(frozen=True)
class CaptureSettings:
    """Bounds of automatic dumps. A capture ordered by hand counts against the budgets and is never refused by them."""

    enabled: bool = True
    why_not: str = "captures are switched off in the settings"
    """Said in the receipt when `enabled` is false, e.g. `no trainer is attached`."""
    level: str = "L0"
    """Of an incident's first dump; a NaN's has `non_finite_level`."""
    non_finite_level: str = "L0"
    steps: int = 2
    """Steps of an incident's first order, the first of them the next step."""
    stages: int = 2
    """Stages of one order, at most."""
    all_ranks_up_to: int = 2
    """Ranks of a run that are all dumped; of more, the first and the last one are."""
    healthy_step: int = 10
    """Step at which a run without golden dumps dumps itself, L0, while it is healthy; 0: never."""
    certain: float = 0.75
    """Confidence in one stage from which no second one is dumped."""
    escalate: bool = True
    """Go on to the operations and tensors of the module that the first dump named."""
    extensions: int = 1
    """Further orders of the same depth for an incident whose question stays open."""
    least_confidence: float = 0.1
    """Suspects below it are not dumped."""
    cool_down_steps: int = 10
    """Steps after a capture before another incident may have one."""
    incident_steps: int = 12
    incident_bytes: int = 8 * 2**30
    incident_seconds: float = 600.0
    day_steps: int = 40
    day_bytes: int = 20 * 2**30
    day_seconds: float = 1800.0
    most_steps: int = 40
    """Dumped steps of a run."""
    most_bytes: int = 20 * 2**30
    most_seconds: float = 1800.0
    """Time that dumped stages took in a run."""
    most_ratio: float = 0.1
    """The same as a share of the training time; the first hour counts as a whole one."""

    def bounds(self) -> tuple[Bound, Bound, Bound]:
        """The budgets of the incident, the day and the run."""
        return (
            Bound(
                over="the incident", steps=self.incident_steps, bytes=self.incident_bytes, seconds=self.incident_seconds
            ),
            Bound(over="the day", steps=self.day_steps, bytes=self.day_bytes, seconds=self.day_seconds),
            Bound(over="the run", steps=self.most_steps, bytes=self.most_bytes, seconds=self.most_seconds),
        )


@dataclass(frozen=True, kw_only=True)
class Moment:
    """When a capture is planned."""

    step: int
    """The first step that can be dumped."""
    now: float = 0.0
    """Unix time; 0 where not known."""
    trained_seconds: float = 0.0
    tokens: float = 0.0
    """Tokens of a step; 0 where not known."""


def plan(
    incident: Incident, moment: Moment, book: Book, settings: CaptureSettings, cleared: frozenset[str] = frozenset()
) -> CaptureOrder | str:
    """The first order of an incident, or a further one of the same depth; or the reason why there is none.

    `cleared` are stages whose dump equals the golden one: the next order looks elsewhere.
    """
    if incident.kind in NO_DUMP_HELPS:
        return NO_DUMP_HELPS[incident.kind]
    stages = stages_of(incident, settings, cleared)
    if not stages:
        return f"no dump is possible of {incident.stage}"
    non_finite = incident.kind == "non_finite"
    rung = RUNGS[FIRST[non_finite]]
    order = CaptureOrder(
        id="",
        run=incident.run,
        incident=incident.id,
        first_step=moment.step,
        last_step=moment.step + settings.steps - 1,
        stages=stages[: rung.stages],
        level=settings.non_finite_level if non_finite else settings.level,
        ranks=ranks_of(book.ranks, settings),
        why=f"{incident.kind} since step {incident.opened_at_step}, {' or '.join(stages[: rung.stages])}: {rung.question}",
    )
    return affordable(order, moment, book, settings)


def ranks_of(ranks: int, settings: CaptureSettings) -> tuple[int, ...] | None:
    """Which ranks dump: all of a few, else rank 0 and the last one, whose rows, and with tensor parallelism weights, are others."""
    return None if ranks <= settings.all_ranks_up_to else (0, ranks - 1)


def rerun_of(incident: Incident, step: int, book: Book, settings: CaptureSettings) -> CaptureOrder | None:
    """The order to run the likeliest stage of the step itself again; None where nothing keeps its inputs, or it has side effects.

    Beside the order for the next step, not instead of it: every rank has to take part, and the weights may have changed.
    """
    stages = tuple(stage for stage in stages_of(incident, settings)[:1] if stage in RERUNNABLE)
    if not (stages and book.recorder and settings.enabled and step == incident.opened_at_step):
        return None
    return CaptureOrder(
        id=f"{incident.id}/r1",
        run=incident.run,
        incident=incident.id,
        first_step=step,
        last_step=step,
        stages=stages,
        level=settings.level,
        ranks=None,
        why=f"{incident.kind} at step {step}: the step itself, from the inputs that the workers kept",
        rerun=True,
    )


def stages_of(incident: Incident, settings: CaptureSettings, cleared: frozenset[str] = frozenset()) -> tuple[str, ...]:
    """What is worth a dump, likeliest first.

    Where the evidence is in an update, the stages before it are not dumped: an update's dump holds its own forward pass.
    """
    possible = [
        s for s in incident.suspects if s.stage in DUMPABLE_STAGES and s.confidence >= settings.least_confidence
    ]
    suspected = [suspect.stage for suspect in possible]
    if possible and not cleared and possible[0].confidence >= settings.certain:
        suspected = suspected[:1]
    elif possible and not cleared and possible[0].stage in UPDATES and possible[0].confidence > 0.5:
        suspected = [stage for stage in suspected if stage in UPDATES]
    wanted = [*suspected, *(ACTOR_STAGES if cleared else ())]
    return tuple(stage for stage in dict.fromkeys(wanted) if stage not in cleared)[: settings.stages]


def deeper(
    last: CaptureOrder,
    rung_name: str,
    found: tuple[str, str],
    *,
    moment: Moment,
    book: Book,
    settings: CaptureSettings,
    tensor_bytes: int | None = None,
) -> CaptureOrder | str:
    """The order of the next rung, narrowed to what the last one found (stage, module); or the reason why there is none."""
    rung = RUNGS[rung_name]
    stage, module = found
    if not module:
        return "no dump named a module that one could be narrowed to"
    ranks = last.ranks
    if rung.one_rank:
        ranks = (0,) if ranks is None else ranks[:1]
    order = replace(
        last,
        id="",
        first_step=moment.step,
        last_step=moment.step + rung.steps - 1,
        stages=(stage,),
        level=rung.level,
        task=rung.task,
        modules=(module,),
        ranks=ranks,
        why=f"{module} of {stage}: {rung.question}",
    )
    return affordable(order, moment, book, settings, tensor_bytes)


def affordable(
    order: CaptureOrder, moment: Moment, book: Book, settings: CaptureSettings, tensor_bytes: int | None = None
) -> CaptureOrder | str:
    """The order with its number, or why it may not be given."""
    if not settings.enabled:
        return settings.why_not
    size = book.size if book.size is None else replace(book.size, tokens=moment.tokens / max(1, book.ranks))
    cost = predicted(order, book.captures, size, tensor_bytes)
    mine = [one for one in book.captures if one.incident == order.incident]
    number = 1 + sum(not one.order.rerun for one in mine)
    incident, day, run = settings.bounds()
    today = of_today(book.captures, book.at, moment.now)
    whole = Cost(steps=book.steps, bytes=book.bytes, seconds=book.seconds)
    why = (
        over_budget(whole, cost, run)
        or over_budget(spent(mine), cost, incident)
        or over_budget(spent(today), cost, day)
        or _over_ratio(whole, cost, moment, settings)
    )
    expected = 0 if cost is None else cost.bytes
    return why or replace(order, id=f"{order.incident}/c{number}", expected_bytes=expected)


def _over_ratio(used: Cost, more: Cost | None, moment: Moment, settings: CaptureSettings) -> str:
    allowed = settings.most_ratio * max(moment.trained_seconds, LEAST_TRAINING_SECONDS)
    ahead = more.seconds if more is not None else 0.0
    if used.seconds + ahead <= allowed:
        return ""
    return (
        f"dumping would have taken {used.seconds + ahead:.3g} s by then, and the budget is {settings.most_ratio:.0%} of the "
        f"training time: {allowed:.3g} s"
    )


def wait_until(incident: Incident, book: Book, settings: CaptureSettings) -> int | None:
    """Step from which the cool-down allows a capture for this incident; None when it does now or never mattered."""
    others = [
        capture.order.last_step
        for capture in book.captures
        if capture.incident not in (None, incident.id) and capture.state != "cancelled"
    ]
    return max(others) + settings.cool_down_steps if others else None


def refused(incident: Incident, step: int, why: str, settings: CaptureSettings) -> CaptureReceipt:
    """The receipt of a capture that was never ordered."""
    return CaptureReceipt(
        first_step=step + 1,
        last_step=step + settings.steps,
        stages=tuple(suspect.stage for suspect in incident.suspects)[: settings.stages],
        ranks=(),
        paths=(),
        bytes=0,
        seconds=0.0,
        outcome="refused",
        why=why,
    )
