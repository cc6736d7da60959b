# SPDX-License-Identifier: Apache-2.0
"""A watch as plain data and back, at any step, with the same continuation.

What is derived from the reference is left out: the reference is given again. Floats stay bare, NaN and infinities included.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from sentinel.core.capture.book import Book
from sentinel.core.capture.cost import ModelSize
from sentinel.core.compare import Recognition
from sentinel.core.detect import DETECTORS
from sentinel.core.engine.state import WatchState
from sentinel.core.frames import frozen
from sentinel.core.report.incidents import Tracked
from sentinel.core.report.plain import capture_to_plain, incident_to_plain
from sentinel.core.report.revive import capture_from_plain, incident_from_plain
from sentinel.core.window import PastStep
from sentinel.records import Reference

VERSION = 2
_COUNTS = ("steps_seen", "attempt", "last_step", "last_at_seconds", "step_seconds", "ended", "comparable", "lag")


def to_plain(state: WatchState) -> dict[str, object]:
    """The watch as dicts, lists, text and numbers."""
    recognition, book = state.recognition, state.book
    return {
        "version": VERSION,
        "run": state.run,
        "recognition": {
            "wanted": recognition.wanted,
            "bans": list(recognition.bans),
            "scores": list(recognition.scores),
            "engine": list(recognition.engine),
            "agreed": recognition.agreed,
            "regime": recognition.regime,
            "seed": recognition.seed,
            "undecided": recognition.undecided,
            "firm": recognition.firm,
        },
        "keys": list(state.keys),
        "memory": {name: _memory_to_plain(kept) for name, kept in state.memory.items()},
        "past": [
            {"step": past.step, "values": past.values.tolist(), "present": past.present.astype(int).tolist()}
            for past in state.past
        ],
        "docket": [
            {
                "incident": incident_to_plain(tracked.incident),
                "quiet": tracked.quiet,
                "asked": tracked.asked,
                "level": tracked.level,
            }
            for tracked in state.docket
        ],
        "book": {
            "captures": [capture_to_plain(capture) for capture in book.captures],
            "manual": book.manual,
            "steps": book.steps,
            "bytes": book.bytes,
            "seconds": book.seconds,
            "at": dict(book.at),
            "parameters": book.size.parameters if book.size is not None else None,
            "ranks": book.ranks,
            "recorder": book.recorder,
            "stages": list(book.stages),
        },
        "warned": [list(pair) for pair in state.warned],
        **{name: getattr(state, name) for name in _COUNTS},
    }


def from_plain(plain: Mapping[str, Any], reference: Reference | None) -> WatchState:
    """The watch again.

    Raises:
        ValueError: another version of the format.
        KeyError: a field is missing.
    """
    if plain["version"] != VERSION:
        raise ValueError(f"stored watch of version {plain['version']}, this program reads {VERSION}")
    recognition, book = dict(plain["recognition"]), dict(plain["book"])
    return WatchState(
        run=plain["run"],
        reference=reference,
        recognition=Recognition(
            **{
                **recognition,
                "bans": tuple(recognition["bans"]),
                "scores": tuple(recognition["scores"]),
                "engine": tuple(recognition["engine"]),
            }
        ),
        keys=tuple(plain["keys"]),
        memory={name: _memory_from_plain(name, kept) for name, kept in plain["memory"].items() if name in DETECTORS},
        past=tuple(
            PastStep(
                step=int(past["step"]),
                values=frozen(np.array(past["values"], dtype=np.float64)),
                present=frozen(np.array(past["present"], dtype=np.bool_)),
            )
            for past in plain["past"]
        ),
        docket=tuple(
            Tracked(
                incident=incident_from_plain(item["incident"]),
                quiet=int(item["quiet"]),
                asked=bool(item["asked"]),
                level=float(item["level"]),
            )
            for item in plain["docket"]
        ),
        book=_book_from_plain(book),
        warned=tuple((str(code), str(text)) for code, text in plain["warned"]),
        # A watch that was stored before runs were judged by progress has no lag.
        **{name: plain[name] for name in _COUNTS if name in plain or name != "lag"},
    )


def _book_from_plain(plain: Mapping[str, Any]) -> Book:
    parameters = plain.get("parameters")
    return Book(
        captures=tuple(capture_from_plain(item) for item in plain["captures"]),
        manual=plain["manual"],
        steps=plain["steps"],
        bytes=plain["bytes"],
        seconds=plain["seconds"],
        at=dict(plain.get("at", {})),
        size=None if parameters is None else ModelSize(parameters=parameters),
        ranks=int(plain.get("ranks", 0)),
        recorder=bool(plain.get("recorder", False)),
        stages=tuple(str(stage) for stage in plain.get("stages", ())),
    )


def _memory_to_plain(kept: object) -> object:
    if not is_dataclass(kept):
        return kept
    values = ((item.name, getattr(kept, item.name)) for item in fields(kept))
    return {name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in values}


def _memory_from_plain(name: str, plain: object) -> object:
    initial = DETECTORS[name].initial()
    if not is_dataclass(initial):
        return plain
    given = dict(cast("Mapping[str, object]", plain))
    return replace(
        cast("Any", initial),
        **{
            key: _array(cast("Sequence[float]", value), getattr(initial, key))
            if isinstance(getattr(initial, key), np.ndarray)
            else value
            for key, value in given.items()
        },
    )


def _array(values: Sequence[float], initial: NDArray[Any]) -> NDArray[Any]:
    """The array again; one without rows still has its columns, which a list does not tell."""
    array = np.array(values, dtype=initial.dtype)
    return frozen(array if array.size else array.reshape(0, *initial.shape[1:]))
