# SPDX-License-Identifier: Apache-2.0
"""The metric catalogue: what a key means, as data.

The most specific pattern wins: the one with the most literal characters. A key that no pattern matches is of class `unknown`:
only the hard rules (NaN, Inf, vanished) apply to it, and it is listed.
"""

from __future__ import annotations

import difflib
import math
import re
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, cast

from sentinel.errors import SettingsError
from sentinel.records import STAGES, UNKNOWN_STAGE

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

PRESETS = ("verl-faq", "npu-2pct", "msprobe", "strict-replay")
"""Names of the presets that ship."""
CLASSES = (
    "exact",
    "close",
    "near_zero",
    "scale",
    "self_consistent",
    "control",
    "count",
    "progress",
    "validation",
    "timing",
    "scheduling",
    "step",
    "ignored",
    "unknown",
)
NEVER_EVIDENCE = frozenset({"timing", "scheduling", "step", "ignored"})
"""Classes to which no rule applies, not even the hard ones."""
PAIRED = frozenset({"close", "near_zero", "scale", "self_consistent", "control"})
"""Classes that are compared step by step under replay."""
BANDED = frozenset({"exact", "close", "near_zero", "scale", "self_consistent", "progress"})
"""Classes that get a band in a free run."""
DIRECTIONS = ("both", "up", "down")
REPLAY_WINDOWS, FREE_WINDOWS = (1, 3, 5, 10), (1, 3, 5, 10, 20)
"""Steps over which the median deviation of a replayed and of a free run is judged."""
REPLAY_LIMITS, FREE_LIMITS = (14.0, 7.0, 5.0, 3.5), (9.0, 5.5, 4.5, 3.5, 3.0)
"""Limits of such medians, in standard deviations of healthy runs, for metrics of which nothing was measured."""
HEAVY_REPLAY_LIMITS, HEAVY_FREE_LIMITS = (0.0, 0.0, 9.0, 5.0), (0.0, 9.0, 7.0, 5.0, 4.0)
"""The same for metrics that single tokens decide: few steps are no evidence."""


@dataclass(frozen=True, slots=True)
class Entry:
    """What the catalogue says of one metric key."""

    pattern: str
    stage: str = UNKNOWN_STAGE
    metric_class: str = "unknown"
    group: str = ""
    """Piece of evidence that localisation takes it for; empty: none."""
    rel: float = 0.0
    abs: float = 0.0
    """Tolerance under replay without twins at the first step: `abs + rel * |baseline|`."""
    direction: str = "both"
    ok: float | None = None
    bad: float | None = None
    """Limits that need no baseline, in the bad direction; None where there are none."""
    first: float | None = None
    """Limit of |value| at step 1, where two models still have equal weights."""
    absurd: float = math.inf
    """|value| that no healthy run has."""
    floor: float = 0.0
    """Smallest tolerance under replay even where the twins agree, e.g. one token's share."""
    natural: float = 1.0
    """Magnitude of what the metric is made of; scales the floor of rounding noise."""
    log: bool = False
    """Deviations are ratios: positive and spread over orders of magnitude, whatever the class."""
    noise: tuple[float, ...] = ()
    """Standard deviation between two clean replays at the first steps and about step 65, where there are no twins; measured."""
    replay: tuple[float, ...] = ()
    """Limits of the median deviation of a replay over `REPLAY_WINDOWS`, in standard deviations; 0: no evidence; empty: `REPLAY_LIMITS`."""
    free: tuple[float, ...] = ()
    """The same for a free run over `FREE_WINDOWS`."""
    heavy: bool = False
    """Decided by single tokens: isolated outliers are normal."""
    bursty: bool = False
    """Bursts in healthy runs, too: wider limits for single steps."""
    varies: bool = False
    unit: str = ""
    text: str = ""

    @property
    def evidence(self) -> bool:
        """Whether any rule applies at all."""
        return self.metric_class not in NEVER_EVIDENCE

    @property
    def replay_limits(self) -> tuple[float, ...]:
        """Limits in force over `REPLAY_WINDOWS`."""
        return self.replay or (HEAVY_REPLAY_LIMITS if self.heavy else REPLAY_LIMITS)

    @property
    def free_limits(self) -> tuple[float, ...]:
        """Limits in force over `FREE_WINDOWS`."""
        return self.free or (HEAVY_FREE_LIMITS if self.heavy else FREE_LIMITS)


def reduction(key: str) -> str:
    """How verl reduced the values of a key over workers: by substring, as its `reduce_metrics` does.

    >>> reduction("actor/grad_norm"), reduction("critic/score/max"), reduction("actor/minibatch_loss")
    ('mean', 'max', 'min')
    """
    if "max" in key:
        return "max"
    return "min" if "min" in key else "mean"


@dataclass(frozen=True)
class Catalogue:
    """Every pattern, ready for look-up; build it with `from_mapping`."""

    exact: Mapping[str, Entry]
    """Patterns without wildcards."""
    globs: tuple[tuple[re.Pattern[str], Entry], ...]
    """Most specific first."""
    presets: Mapping[str, Mapping[str, Mapping[str, object]]] = field(default_factory=dict)
    """Name -> pattern -> fields that the preset changes."""
    overrides: tuple[tuple[re.Pattern[str], Mapping[str, object]], ...] = ()
    """Applied in order to the entry that was found."""
    _found: dict[str, Entry] = field(default_factory=dict, repr=False, compare=False)
    # A memo of a pure function: it changes no answer, only its cost.

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, object], presets: Mapping[str, Any] | None = None) -> Catalogue:
        """Build from the parsed `metrics.toml` and `presets.toml`.

        Raises:
            SettingsError: an entry has an unknown field, class, stage or direction; the text names it.
        """
        entries = [entry for raw in _tables(mapping.get("metric")) for entry in _entries(raw)]
        exact = {entry.pattern: entry for entry in entries if "*" not in entry.pattern}
        wild = [entry for entry in entries if "*" in entry.pattern]
        wild.sort(key=lambda entry: (-_literals(entry.pattern), entry.pattern))
        named = {name: dict(preset["metrics"]) for name, preset in (presets or {}).items()}
        globs = tuple((_compiled(entry.pattern), entry) for entry in wild)
        return cls(exact=exact, globs=globs, presets=named)

    def with_overrides(self, overrides: Mapping[str, Mapping[str, object]], presets: Iterable[str] = ()) -> Catalogue:
        """The same catalogue with fields of some entries changed: first by the presets in their order, then by `overrides`.

        Raises:
            SettingsError: an unknown preset or field.
        """
        added = []
        for name in presets:
            if name not in self.presets:
                raise SettingsError(f"preset {name!r} is none of {', '.join(self.presets) or 'those that are loaded'}")
            added += _overriding(self.presets[name])
        added += _overriding(overrides)
        return replace(self, overrides=(*self.overrides, *added), _found={}) if added else self

    def entry(self, key: str) -> Entry:
        """What is known of `key`; class `unknown` where no pattern matches."""
        found = self._found.get(key)
        if found is None:
            found = self._found[key] = self._look_up(key)
        return found

    def unknown(self, keys: Iterable[str]) -> tuple[str, ...]:
        """Those of `keys` that no pattern matches, sorted."""
        return tuple(sorted({key for key in keys if self.entry(key).metric_class == "unknown"}))

    def _look_up(self, key: str) -> Entry:
        entry = self.exact.get(key)
        if entry is None:
            entry = next((entry for pattern, entry in self.globs if pattern.fullmatch(key)), Entry(pattern=key))
        for pattern, changed in self.overrides:
            if pattern.fullmatch(key) and (entry.metric_class in PAIRED or pattern.pattern != ".*"):
                entry = replace(entry, **cast("dict[str, Any]", dict(changed)))
        return entry


def check_overrides(overrides: Mapping[str, Mapping[str, object]]) -> None:
    """Refuse what no catalogue could take.

    Raises:
        SettingsError: an unknown field, class, stage or direction, or something that is no number.
    """
    _overriding(overrides)


def _overriding(overrides: Mapping[str, Mapping[str, object]]) -> list[tuple[re.Pattern[str], Mapping[str, object]]]:
    out: list[tuple[re.Pattern[str], Mapping[str, object]]] = []
    for match, given in overrides.items():
        changed = _checked(given, match)
        if {"rel", "abs"} & changed.keys():
            # A tolerance that somebody states outweighs the measured noise.
            changed.setdefault("noise", ())
        out += [(_compiled(pattern), changed) for pattern in _expand(match)]
    return out


_NAMES = {"class": "metric_class"}
_FIELDS = {item.name for item in fields(Entry)} - {"pattern"}


def _tables(value: object) -> list[Mapping[str, object]]:
    if not isinstance(value, (list, tuple)) or not value:
        raise SettingsError("metric catalogue: no [[metric]] entries; take sentinel/data/metrics.toml as a pattern")
    return list(value)


def _entries(raw: Mapping[str, object]) -> list[Entry]:
    given = dict(raw)
    patterns = given.pop("match", None)
    if not isinstance(patterns, (list, tuple)) or not patterns:
        raise SettingsError(f"metric catalogue: an entry without `match`: {dict(raw)}")
    changed = _checked(given, str(patterns[0]))
    plain = cast("dict[str, Any]", changed)
    return [Entry(pattern=pattern, **plain) for text in patterns for pattern in _expand(str(text))]


def _checked(given: Mapping[str, object], where: str) -> dict[str, object]:
    changed: dict[str, object] = {}
    for name, value in given.items():
        target = _NAMES.get(name, name)
        if target not in _FIELDS:
            near = difflib.get_close_matches(name, [*_FIELDS, *_NAMES], n=1)
            hint = f", did you mean {near[0]}?" if near else ""
            raise SettingsError(f"metric catalogue, {where}: unknown field {name}{hint}")
        changed[target] = value
    _one_of(changed, "metric_class", CLASSES, where)
    _one_of(changed, "stage", (*STAGES, UNKNOWN_STAGE), where)
    _one_of(changed, "direction", DIRECTIONS, where)
    for name in ("rel", "abs", "ok", "bad", "first", "absurd", "floor", "natural"):
        value = changed.get(name, 0.0)
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise SettingsError(f"metric catalogue, {where}: {name} must be a number, not {value!r}")
        if name in changed:
            changed[name] = float(value)
    for name, count in (("noise", 2), ("replay", len(REPLAY_WINDOWS)), ("free", len(FREE_WINDOWS))):
        if name in changed:
            changed[name] = _numbers(changed[name], count, f"{where}: {name}")
    return changed


def _numbers(value: object, count: int, where: str) -> tuple[float, ...]:
    good = isinstance(value, (list, tuple)) and len(value) == count
    if not good or any(
        isinstance(one, bool) or not isinstance(one, (int, float)) or one < 0 for one in cast("Any", value)
    ):
        raise SettingsError(f"metric catalogue, {where} must be {count} numbers that are not negative, not {value!r}")
    return tuple(float(one) for one in cast("Any", value))


def _one_of(changed: Mapping[str, object], name: str, allowed: tuple[str, ...], where: str) -> None:
    if changed.get(name, allowed[0]) not in allowed:
        raise SettingsError(f"metric catalogue, {where}: {name} {changed[name]!r} is none of {', '.join(allowed)}")


def _expand(pattern: str) -> list[str]:
    """Write out the alternatives of a pattern.

    >>> _expand("a/{mean,max}/*")
    ['a/mean/*', 'a/max/*']
    """
    found = re.search(r"\{([^{}]*)\}", pattern)
    if found is None:
        return [pattern]
    head, tail = pattern[: found.start()], pattern[found.end() :]
    return [whole for choice in found[1].split(",") for whole in _expand(head + choice + tail)]


def _literals(pattern: str) -> int:
    return len(pattern.replace("*", ""))


def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(".*".join(re.escape(part) for part in pattern.split("*")), re.DOTALL)
