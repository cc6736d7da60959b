# SPDX-License-Identifier: Apache-2.0
"""What trainer and daemon say to each other: plain built-in types, version 1.

A message comes from another process, perhaps of another version of Sentinel, with names that users typed and values
that a framework computed. So nothing here raises: what cannot be read is left out and said in `Message.faults`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sentinel.core.report.revive import receipt_from_plain

if TYPE_CHECKING:
    from sentinel.records import CaptureReceipt

VERSION = 1
RUN_LENGTH = 120
"""Characters of a run's name that are kept; names become labels, file names and titles."""
KEY_LENGTH = 200
KEYS_A_STEP = 4000
"""Metrics of one step that are looked at; verl logs about a hundred."""
KEYS_A_RUN = 6000
"""Metrics of one run that are watched."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Started:
    """A trainer process introduces itself."""

    at: float
    facts: Mapping[str, Any]
    config_path: str | None = None
    config_text: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Stepped:
    """The metrics of one call of the trainer's logger."""

    step: int
    at: float
    values: Mapping[str, float]
    unreadable: tuple[str, ...]
    mark: float
    """Tells this call apart from others of the same step; the same when it is sent again."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Receipted:
    """What became of an order."""

    capture: str
    at: float
    receipt: CaptureReceipt


@dataclass(frozen=True, kw_only=True, slots=True)
class Health:
    """What the trainer side says of itself."""

    numbers: Mapping[str, float]


@dataclass(frozen=True, kw_only=True, slots=True)
class Ended:
    """The trainer process says goodbye."""

    at: float
    finished: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Said:
    """A line of a log that matters, e.g. that a worker's gradient norm is not finite."""

    at: float
    code: str
    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Described:
    """What the run and its workers compute with, as they say it themselves."""

    at: float
    facts: Mapping[str, Any]


Record = Described | Started | Stepped | Receipted | Health | Ended | Said


@dataclass(frozen=True, kw_only=True, slots=True)
class Message:
    """One call of `report`."""

    run: str
    session: str
    records: tuple[Record, ...]
    faults: tuple[str, ...] = field(default=())
    """What could not be read, one sentence each."""


def parse(message: object) -> Message:
    """Return what `message` says; never raises for what came over the wire."""
    if not isinstance(message, Mapping):
        return Message(run="", session="", records=(), faults=("the message is no mapping",))
    faults: list[str] = []
    if message.get("v") != VERSION:
        faults.append(f"the message has version {message.get('v')!r}; this daemon speaks version {VERSION}")
    run = clean_name(message.get("run"))
    if not run:
        faults.append("the message names no run")
    listed = message.get("records")
    records: list[Record] = []
    for raw in listed if isinstance(listed, Sequence) and not isinstance(listed, (str, bytes)) else ():
        try:
            record = _record(raw, faults)
        except (AttributeError, KeyError, TypeError, ValueError, OverflowError) as error:
            faults.append(f"a record could not be read: {type(error).__name__} {str(error)[:200]}")
            continue
        if record is not None:
            records.append(record)
    return Message(run=run, session=str(message.get("session"))[:80], records=tuple(records), faults=tuple(faults))


def bounded(values: Mapping[str, float], known: Mapping[str, object]) -> Mapping[str, float]:
    """Return a step's values without new metrics once the run has very many: a name with a number in it is for ever new."""
    if len(known) + len(values) <= KEYS_A_RUN:
        return values
    return {key: value for key, value in values.items() if key in known}


def clean_name(name: object) -> str:
    """Return a run's name as it is shown everywhere: one line, no control characters, bounded."""
    text = re.sub(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]+", " ", str(name or "")).strip()
    return text[:RUN_LENGTH]


def _record(raw: Mapping[str, Any], faults: list[str]) -> Record | None:
    read = _READERS.get(raw["t"])
    if raw["t"] == "step":
        return _step(raw, faults)
    return None if read is None else read(raw)  # None: of a later version


def _start(raw: Mapping[str, Any]) -> Started:
    config = raw.get("config") or {}
    facts = raw.get("facts") or {}
    return Started(
        at=_time(raw),
        facts={str(key)[:KEY_LENGTH]: value for key, value in facts.items()},
        config_path=config.get("path"),
        config_text=config.get("text"),
    )


def _facts(raw: Mapping[str, Any]) -> Described:
    return Described(at=_time(raw), facts={str(key)[:KEY_LENGTH]: value for key, value in raw["facts"].items()})


def _receipt(raw: Mapping[str, Any]) -> Receipted:
    return Receipted(capture=str(raw["capture"]), at=_time(raw), receipt=receipt_from_plain(raw["receipt"]))


def _said(raw: Mapping[str, Any]) -> Said:
    return Said(at=_time(raw), code=str(raw["code"])[:KEY_LENGTH], text=str(raw.get("text", ""))[:1000])


def _health(raw: Mapping[str, Any]) -> Health:
    return Health(numbers=_numbers(raw))


def _end(raw: Mapping[str, Any]) -> Ended:
    return Ended(at=_time(raw), finished=bool(raw.get("finished")))


_READERS: Mapping[object, Callable[[Mapping[str, Any]], Record]] = {
    "start": _start,
    "facts": _facts,
    "receipt": _receipt,
    "said": _said,
    "health": _health,
    "end": _end,
}


def _step(raw: Mapping[str, Any], faults: list[str]) -> Stepped:
    values: dict[str, float] = {}
    unreadable = [str(key)[:KEY_LENGTH] for key in raw.get("unreadable") or ()]
    items = list(raw["values"].items())
    if len(items) > KEYS_A_STEP:
        faults.append(f"step {raw['step']} has {len(items)} metrics; the first {KEYS_A_STEP} are watched")
    for key, value in items[:KEYS_A_STEP]:
        name = str(key)
        if len(name) > KEY_LENGTH:
            faults.append(f"a metric name of {len(name)} characters is left out: {name[:40]}...")
        elif isinstance(value, (int, float)):
            values[name] = float(value)
        else:
            unreadable.append(name)
    at = _time(raw)
    return Stepped(
        step=int(raw["step"]),
        at=at,
        values=values,
        unreadable=tuple(unreadable[:KEYS_A_STEP]),
        mark=float(raw.get("n", at)),
    )


def _time(raw: Mapping[str, Any]) -> float:
    at = float(raw.get("at") or 0.0)
    return at if math.isfinite(at) else 0.0


def _numbers(raw: Mapping[str, Any]) -> dict[str, float]:
    """Flatten the trainer's words on itself: `{"fuses": {"capture": 1}}` becomes `fuses.capture`."""
    found: dict[str, float] = {}
    for key, value in list(raw.items())[:100]:
        if isinstance(value, Mapping):
            found.update({f"{key}.{name}": float(item) for name, item in list(value.items())[:100]})
        elif isinstance(value, (int, float)):
            found[str(key)] = float(value)
    return found
