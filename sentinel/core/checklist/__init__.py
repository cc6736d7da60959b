# SPDX-License-Identifier: Apache-2.0
"""The alignment checklist: two sides and the rules in, one answer per check out. Unknown is never a pass.

    Side (target), Side (golden), Rules, Evidence -> check_all -> CheckResult... -> verdict, mending

The ids and their order are those of the command-line contract; docs/preflight.md says which section of the alignment
guide each one stands for.
"""

from __future__ import annotations

from sentinel.core.checklist import configuration, determinism, model, runs, versions
from sentinel.core.checklist.mend import Mending, mending
from sentinel.core.checklist.result import ALIGNED, FAIL, INCOMPLETE, MISALIGNED, CheckResult, Difference, verdict
from sentinel.core.checklist.rules import SCENARIOS, Rules
from sentinel.core.checklist.runs import Evidence
from sentinel.core.checklist.side import FORMAT, Process, Side, comparable, flatten

__all__ = [
    "ALIGNED",
    "CHECKS",
    "FORMAT",
    "INCOMPLETE",
    "MISALIGNED",
    "SCENARIOS",
    "CheckResult",
    "Difference",
    "Evidence",
    "Mending",
    "Process",
    "Rules",
    "Side",
    "check_all",
    "comparable",
    "flatten",
    "mending",
    "parted_workers",
    "verdict",
]

CHECKS = (
    "versions.strict",
    "versions.close",
    "weights.files",
    "weights.config",
    "data.shuffle",
    "data.order",
    "config.explicit",
    "config.effective",
    "determinism.seed",
    "determinism.env",
    "rollout.load_format",
    "rollout.logprobs",
    "rollout.text",
    "replay.recording",
    "replay.happened",
    "capture.armed",
    "capture.compared",
)


def parted_workers(side: Side, rules: Rules) -> tuple[Difference, ...]:
    """Return what differs between the workers of one run: packages, and variables of determinism."""
    if not side.workers_known:
        return ()
    names = (*rules.strict, *rules.close, *rules.close_where_both)
    return (*versions.between_workers(side, names, FAIL), *determinism.parted(side, rules))


def check_all(
    target: Side, golden: Side, rules: Rules, *, scenario: str | None = None, evidence: Evidence | None = None
) -> tuple[CheckResult, ...]:
    """Return the answer of every check, in the order of CHECKS.

    Args:
        target: the side that is judged.
        golden: the baseline.
        rules: of `data/checklist.toml`.
        scenario: hccl, lccl or single; None: found from the target.
        evidence: what is known of the run itself.
    """
    seen = evidence or Evidence()
    return (
        versions.strict(target, golden, rules),
        versions.close(target, golden, rules),
        model.weight_files(target, golden, rules),
        model.config_files(target, golden, rules),
        configuration.shuffle(target, golden, rules),
        runs.order(target, golden, rules),
        configuration.explicit(target, golden, rules),
        configuration.effective(target, golden, rules),
        determinism.seeds(target, golden, rules),
        determinism.environment(target, rules, scenario),
        configuration.load_format(target, golden, rules),
        configuration.log_probs(target, golden, rules),
        runs.text(target, golden, seen),
        runs.recording(target, golden, seen),
        runs.happened(target, golden, seen),
        runs.armed(target, golden, seen),
        runs.compared(target, golden, seen),
    )
