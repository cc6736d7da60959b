# SPDX-License-Identifier: Apache-2.0
"""Everything a watch remembers of one run, as a value, and the settings that rule it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from sentinel.core.capture.book import Book
from sentinel.core.capture.policy import CaptureSettings
from sentinel.core.catalogue import PRESETS, Catalogue, check_overrides
from sentinel.core.compare import Baseline, FreeBands, Look, Pairing, Recognition, learn, learn_bands, learn_pairing
from sentinel.core.detect import DETECTORS
from sentinel.core.frames import SeriesIndex, index_of
from sentinel.core.report.incidents import Docket, IncidentSettings
from sentinel.core.window import Past
from sentinel.errors import SettingsError
from sentinel.records import Reference

REGIMES = ("auto", "replayed", "free")


@dataclass(frozen=True)
class EngineSettings:
    """How the engine watches one run."""

    incidents: IncidentSettings = field(default_factory=IncidentSettings)
    capture: CaptureSettings = field(default_factory=CaptureSettings)
    past_steps: int = 64
    """Steps kept for charts and for telling a late step from a restart."""
    silent_after_seconds: float = 1800.0
    """Silence that is an incident, at least; a run whose steps are long is given ten of them."""
    receipt_grace_steps: int = 3
    """Steps after a capture's last one within which a receipt must come."""
    detectors: tuple[str, ...] = tuple(DETECTORS)
    """Names of the detectors that look, in this order."""
    presets: tuple[str, ...] = ()
    """Named tolerance presets of the metric catalogue, applied in this order: verl-faq, npu-2pct, msprobe, strict-replay."""
    metrics: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Own changes of the metric catalogue, after the presets: pattern -> fields, e.g. `actor/entropy: {rel: 0.02}`."""

    def __post_init__(self) -> None:
        unknown = [name for name in self.presets if name not in PRESETS]
        if unknown:
            raise SettingsError(f"preset {unknown[0]!r} is none of {', '.join(PRESETS)}")
        check_overrides(self.metrics)


@dataclass(frozen=True)
class WatchState:
    """One run's watch. Derived fields are rebuilt from the reference and are not stored."""

    run: str
    reference: Reference | None
    recognition: Recognition
    keys: tuple[str, ...] = ()
    """Series in the order of their rows."""
    memory: Mapping[str, Any] = field(default_factory=dict)
    """Detector name -> its state."""
    past: Past = ()
    docket: Docket = ()
    book: Book = field(default_factory=Book)
    warned: tuple[tuple[str, str], ...] = ()
    """(code, text), each code once."""
    steps_seen: int = 0
    attempt: int = 1
    last_step: int | None = None
    last_at_seconds: float | None = None
    lag: int = 0
    """Steps by which a free run was behind the baseline's seeds at the last step."""
    step_seconds: float = 0.0
    """Smoothed time between steps; 0 while unknown."""
    ended: str = ""
    """finished or left once the trainer is gone."""
    comparable: bool | None = None
    """Whether the run can be compared with the baseline; None until a step told."""

    index: SeriesIndex | None = field(default=None, compare=False)
    baseline: Baseline | None = field(default=None, compare=False)
    pairing: Pairing | None = field(default=None, compare=False)
    bands: FreeBands | None = field(default=None, compare=False)
    look: Look | None = field(default=None, compare=False)
    """The last step, judged."""

    @property
    def regime(self) -> str:
        """replayed, free, alone (no baseline, or none that fits), unknown (not enough steps yet)."""
        if self.baseline is None or self.comparable is False:
            return "alone"
        return self.recognition.regime


def prepared(state: WatchState, catalogue: Catalogue) -> WatchState:
    """The state with its derived fields, which a stored one lacks."""
    if state.index is not None:
        return state
    baseline = state.baseline
    if baseline is None and state.reference is not None:
        baseline = learn(state.reference, catalogue)
    keys = state.keys or (() if baseline is None else baseline.index.keys)
    state = replace(state, keys=keys, index=index_of(keys, catalogue), baseline=baseline)
    if baseline is None:
        return state
    # What can be foreseen is learned now, so that no step waits for it.
    wanted, seed, pairing, bands = state.recognition.wanted, state.recognition.seed, state.pairing, state.bands
    if wanted != "free" and (pairing is None or pairing.seed != seed):
        pairing = learn_pairing(baseline, seed)
    if wanted != "replayed" and bands is None:
        bands = learn_bands(baseline)
    return replace(state, pairing=pairing, bands=bands)


def with_comparison(state: WatchState) -> WatchState:
    """The state with what its regime needs to compare: the replayed seed's course, or the seeds' bands."""
    if state.baseline is None:
        return state
    seed = state.recognition.seed
    if state.regime == "replayed" and (state.pairing is None or state.pairing.seed != seed):
        return replace(state, pairing=learn_pairing(state.baseline, seed))
    if state.regime == "free" and state.bands is None:
        return replace(state, bands=learn_bands(state.baseline))
    return state


def warned(state: WatchState, code: str, text: str) -> tuple[WatchState, bool]:
    """The state with a warning noted; False when the code was said before."""
    if any(known == code for known, _ in state.warned):
        return state, False
    return replace(state, warned=(*state.warned, (code, text))), True
