# SPDX-License-Identifier: Apache-2.0
"""The vocabulary: every value that crosses a stage boundary.

Plain, frozen, standard library only; stages know these records and not each other.
Names and forms follow the command-line contract, so that turning a record into JSON is a walk over its fields.
Steps are the trainer's global steps. Times are seconds. Sizes are bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sentinel.raw_records import LayerStat as LayerStat  # noqa: PLC0414  # passed on: mypy takes only this form
from sentinel.raw_records import RolloutRecording as RolloutRecording  # noqa: PLC0414  # passed on
from sentinel.raw_records import RolloutRow as RolloutRow  # noqa: PLC0414  # passed on

# The order of the data flow of one RL step; localisation walks it from the left.
STAGES = (
    "data",
    "config",
    "rollout",
    "compute_rm_score",
    "actor_compute_log_prob",
    "ref_compute_log_prob",
    "compute_values",
    "advantage",
    "critic_update",
    "actor_update",
)
UNKNOWN_STAGE = "unknown"

# Stages that run a torch module in a training worker, so that a dump of them is possible.
DUMPABLE_STAGES = (
    "actor_compute_log_prob",
    "ref_compute_log_prob",
    "compute_values",
    "compute_rm_score",
    "critic_update",
    "actor_update",
)

LEVELS = ("L0", "L1", "mix")


# --------------------------------------------------------------------------- what was read or reported


@dataclass(frozen=True, slots=True)
class Reading:
    """The metrics of one step of one attempt, as a reader or the trainer saw them."""

    step: int
    metrics: Mapping[str, float]
    """Key as printed -> value; NaN and the infinities are values, an absent key is absent."""
    kind: str = "train"
    """`train`, or `val` when every key is a validation key."""
    attempt: int = 1
    """1, 2, ...: a restart of the run inside one source begins a new attempt."""


@dataclass(frozen=True, slots=True)
class ReadResult:
    """A whole metric file."""

    format: str
    steps: tuple[Reading, ...]
    """In order of attempt, then step."""
    warnings: tuple[str, ...] = ()
    """Codes, each once, in order of first appearance."""
    summary: Mapping[str, float] | None = None
    """The closing record of a run, where the format has one; never a step."""
    resolution: float | None = None
    """Smallest difference the file can show (0.001 for three printed decimals); None where not limited."""


@dataclass(frozen=True, slots=True)
class GoldenDump:
    """Where a reference run's dump of one stage of one step lies."""

    step: int
    stage: str
    ranks: tuple[int, ...]
    path: str
    """The stage directory `<root>/step_<N>/<stage>`; inside a bundle, the member prefix."""


@dataclass(frozen=True, slots=True)
class ReferenceRun:
    """One reference run: a seed of the recipe, or (`twin`) a clean repeat on the same rollouts."""

    source: str
    readings: tuple[Reading, ...]
    twin: bool = False
    resolution: float | None = None


@dataclass(frozen=True, slots=True)
class Reference:
    """Everything a run is compared with, as read from a bundle or from loose files."""

    name: str
    runs: tuple[ReferenceRun, ...]
    """Seeds first, then twins; at least one run that is not a twin, unless only dumps are known."""
    dumps: tuple[GoldenDump, ...] = ()
    fingerprint: Mapping[str, object] | None = None
    rollout_steps: tuple[int, ...] = ()


# --------------------------------------------------------------------------- events: what the engine is told


@dataclass(frozen=True, slots=True)
class StepReported:
    """A step's metrics arrived."""

    step: int
    values: Mapping[str, float]
    kind: str = "train"
    attempt: int = 1
    at_seconds: float = 0.0
    """Unix time of the report. For people and for silence; never used to judge a metric."""
    unreadable: tuple[str, ...] = ()
    """Keys that came with something that is no number (text, array, None)."""


@dataclass(frozen=True, slots=True)
class CaptureReported:
    """The trainer side says what became of an order."""

    capture: str
    """Id of the capture."""
    receipt: CaptureReceipt
    at_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class CaptureRequested:
    """A person ordered a capture by hand."""

    order: CaptureOrder
    at_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class CaptureCancelled:
    """A person ended a capture."""

    capture: str
    at_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class TriageArrived:
    """The comparison of a captured dump with the golden one came back."""

    incident: str
    capture: str
    triage: Triage
    at_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Tick:
    """Time went by. Sent now and then, so that silence can be noticed."""

    at_seconds: float


@dataclass(frozen=True, slots=True)
class TrainerLeft:
    """The trainer process said goodbye (`finished`) or its connection was given up."""

    finished: bool
    at_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class WorkerSaid:
    """A worker printed something that matters, e.g. that a gradient norm is not finite."""

    code: str
    text: str
    at_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class TrainerDescribed:
    """What the run told of itself that decides about captures; 0 where it did not say."""

    ranks: int = 0
    parameters: float = 0.0
    """Of the largest model that is dumped, all ranks together."""
    stages: tuple[str, ...] = ()
    """Stages of the run that can be dumped."""
    recorder: bool = False
    """The workers keep the inputs of stages without side effects."""
    at_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class EvidenceFound:
    """A part outside the engine found something about the run: its rollout text, or a replay that did not happen."""

    finding: Finding
    suspects: tuple[Suspect, ...]
    notes: tuple[str, ...] = ()
    """What to do next, for the incident."""
    at_seconds: float = 0.0


Event = (
    StepReported
    | CaptureReported
    | CaptureRequested
    | CaptureCancelled
    | TriageArrived
    | Tick
    | TrainerLeft
    | TrainerDescribed
    | WorkerSaid
    | EvidenceFound
)


# --------------------------------------------------------------------------- what the engine concludes


@dataclass(frozen=True, slots=True)
class Band:
    """The values that were expected; an open side is infinite."""

    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Finding:
    """One detector's statement about one metric at one step."""

    detector: str
    metric: str
    step: int
    value: float
    """NaN where the metric is absent."""
    expected: Band | None
    because: str
    """One sentence with the numbers in it; alert, report and tests quote it."""
    stage: str = UNKNOWN_STAGE
    kind: str = "drift"
    """Kind of incident that it opens: non_finite, drift, spike, vanished, self_inconsistent, mismatch, collapse, silence."""
    score: float = 1.0
    """How far out, in tolerances; 1.0 is the border."""
    jumped: bool = False
    """Judged over several steps, and yet the metric came to where it is within one of them; asked where a stage is sought."""


@dataclass(frozen=True, slots=True)
class Suspect:
    """A stage that may hold the fault."""

    stage: str
    confidence: float
    """0 to 1; the confidences of an incident's suspects sum to at most 1."""
    because: str = ""


@dataclass(frozen=True, slots=True)
class CaptureOrder:
    """Which steps, stages and ranks to dump, and why."""

    id: str
    run: str
    incident: str | None
    first_step: int
    last_step: int
    stages: tuple[str, ...]
    level: str
    ranks: tuple[int, ...] | None
    """None: all ranks."""
    why: str
    modules: tuple[str, ...] = ()
    """Module paths that the dump is narrowed to; empty: the whole model."""
    task: str = "statistics"
    expected_bytes: int = 0
    """What it is predicted to take on disk, all steps; 0 where nothing is known. The trainer asks for that much free space."""
    rerun: bool = False
    """True: not the next step is dumped, but the kept inputs of `first_step` are run again at the next boundary."""


@dataclass(frozen=True, slots=True)
class CaptureReceipt:
    """What was really dumped."""

    first_step: int
    last_step: int
    stages: tuple[str, ...]
    ranks: tuple[int, ...]
    paths: tuple[str, ...]
    """Stage directories `<root>/step_<N>/<stage>`."""
    bytes: int
    seconds: float
    outcome: str
    """complete, partial, failed, skipped, refused, cancelled, expired."""
    why: str = ""


@dataclass(frozen=True, slots=True)
class Capture:
    """One order and what became of it."""

    id: str
    run: str
    incident: str | None
    state: str
    """ordered, recording, done, failed, cancelled."""
    order: CaptureOrder
    receipt: CaptureReceipt | None = None


@dataclass(frozen=True, slots=True)
class Comparable:
    """Whether two dumps may be compared: True, False, or None where it could not be told."""

    step: bool | None
    rows: bool | None
    weights: bool | None


@dataclass(frozen=True, slots=True)
class Divergence:
    """The first place where target and golden part, or where the first NaN or Inf appears."""

    stage: str
    name: str
    module: str
    direction: str
    position: str
    why: str
    target: Mapping[str, object]
    golden: Mapping[str, object] | None
    operation: str = ""
    """The one operation that the module is, where the dump proves that; else empty."""


@dataclass(frozen=True, slots=True)
class Triage:
    """The answer of comparing a dump with its golden one, or of looking for the first NaN in one dump."""

    verdict: str
    """same, diverged, not_comparable; with one dump: clean, non_finite."""
    comparable: Comparable | None
    first: Divergence | None
    compared: int
    only_in_target: tuple[str, ...] = ()
    only_in_golden: tuple[str, ...] = ()
    ranks: tuple[int, ...] = ()
    step: int | None = None
    """Step of the target dump, where known."""
    target: str = ""
    golden: str = ""
    notes: tuple[str, ...] = ()
    suspects: tuple[Divergence, ...] = ()
    """The next places, at most three."""
    tensor_bytes: int | None = None
    """What the tensors of the first place's module would take on disk, by the shapes in the dump; None where not known."""


@dataclass(frozen=True, slots=True)
class Incident:
    """What went wrong, since when, in which stage, and what is known about it."""

    id: str
    run: str
    kind: str
    state: str
    """open or closed."""
    opened_at_step: int
    closed_at_step: int | None
    severity: str
    """warning or critical."""
    stage: str
    suspects: tuple[Suspect, ...]
    findings: tuple[Finding, ...]
    capture: CaptureOrder | None = None
    receipt: CaptureReceipt | None = None
    triage: Triage | None = None
    because: str = ""
    """One sentence: the leading finding, and what triage added."""
    last_seen_step: int = 0
    notes: tuple[str, ...] = ()
    """What Sentinel did or could not do about it, in order."""


# --------------------------------------------------------------------------- effects: what the shells are asked to do


@dataclass(frozen=True, slots=True)
class OrderCapture:
    """Hand this order to the trainer."""

    order: CaptureOrder


@dataclass(frozen=True, slots=True)
class CancelCapture:
    """Take this order back."""

    capture: str


@dataclass(frozen=True, slots=True)
class AskTriage:
    """Compare what this capture dumped with the baseline's golden dumps."""

    incident: str
    capture: str
    receipt: CaptureReceipt
    non_finite: bool
    """True: look for the first NaN or Inf rather than for a difference."""
    stages: tuple[str, ...]
    """Most suspicious first."""


@dataclass(frozen=True, slots=True)
class IncidentChanged:
    """An incident was opened, grew, or closed: journal it, report it, alert."""

    incident: Incident
    change: str
    """opened, grew, evidence, closed."""


@dataclass(frozen=True, slots=True)
class Warned:
    """Something about the data that people should know, said once per run and code."""

    code: str
    text: str


Effect = OrderCapture | CancelCapture | AskTriage | IncidentChanged | Warned


# --------------------------------------------------------------------------- what is shown


@dataclass(frozen=True, slots=True)
class MetricState:
    """Last value of a metric beside what the baseline expected."""

    metric: str
    stage: str
    value: float
    expected: Band | None
    score: float | None
    """Deviation in tolerances; None where nothing is expected."""


@dataclass(frozen=True, slots=True)
class Chart:
    """A metric beside what the baseline expected, step by step; all sequences have one length."""

    metric: str
    stage: str
    steps: tuple[int, ...]
    values: tuple[float, ...]
    """NaN where the value is NaN or absent."""
    reference: tuple[float, ...]
    """The baseline's value (replayed) or centre (free); NaN where it has none."""
    low: tuple[float, ...]
    high: tuple[float, ...]
    """Edges of the expected band; infinite where open or nothing is expected."""
    marked: tuple[int, ...] = ()
    """Steps at which a finding about this metric was made."""


@dataclass(frozen=True, slots=True)
class RunSnapshot:
    """One run as the daemon sees it now."""

    run: str
    state: str
    """waiting (no step yet), watching, incident, silent, finished."""
    regime: str
    """replayed, free, alone (no baseline), unknown (not enough steps yet)."""
    last_step: int | None
    last_step_at_seconds: float | None
    baseline: str | None
    metrics: tuple[MetricState, ...]
    incidents: tuple[Incident, ...]
    captures: tuple[Capture, ...]
    warnings: tuple[str, ...] = ()
    steps_seen: int = 0
    trainer: Mapping[str, float] = field(default_factory=dict)
    """What the trainer side said of itself: drops, burnt fuses, waits."""
