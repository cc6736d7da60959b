# SPDX-License-Identifier: Apache-2.0
"""One side of the checklist: environment, model, configuration and data order in one document.

What cannot be looked at is left out and named in `notes`; credentials are cut out where they are first read.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from sentinel.errors import BaselineError
from sentinel.sources.environment import own_facts
from sentinel.sources.rollout_order import order_facts
from sentinel.sources.run_config import config_facts
from sentinel.sources.weights import default_cache, model_facts

FORMAT = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Parts:
    """Where the parts of a side lie; None: not given."""

    model: Path | None = None
    log: Path | None = None
    launch: Path | None = None
    rollouts: Path | None = None
    quick: bool = False
    elsewhere: bool = False
    """The files are of a run on another machine: the environment here says nothing about it."""


def take(parts: Parts, said: Callable[[str], None] = lambda _text: None) -> dict[str, Any]:
    """Return the fingerprint document.

    Raises:
        SettingsError, UnreadableLog: a file that was given cannot be read.
    """
    document: dict[str, Any] = {
        "sentinel_fingerprint": FORMAT,
        "made": datetime.now(timezone.utc).isoformat(timespec="seconds"),
    }
    notes: list[str] = []
    said("reading the configuration")
    config = config_facts(log=parts.log, launch=parts.launch)
    notes += config.pop("notes", [])  # type: ignore[arg-type]
    if not parts.elsewhere:
        said("looking at the environment")
        exports = config.get("exports")
        document["process"] = own_facts(exports if isinstance(exports, Mapping) else None)
    if parts.log is not None or parts.launch is not None:
        document["config"] = config
    if parts.model is not None:
        try:
            document["model"] = model_facts(parts.model, quick=parts.quick, cache=default_cache(), said=said)
        except BaselineError as error:
            notes.append(f"model: {error.why}")
    if parts.rollouts is not None:
        said("reading rollouts")
        document["data"] = {"order": order_facts(parts.rollouts)}
    return document | {"notes": notes}


def is_fingerprint(path: Path) -> bool:
    """Return whether a file is a fingerprint document."""
    try:
        with path.open("rb") as file:
            head = file.read(4096)
    except OSError:
        return False
    return head.lstrip().startswith(b"{") and b'"sentinel_fingerprint"' in head


def read_fingerprint(path: Path) -> dict[str, Any]:
    """Return a fingerprint document.

    Raises:
        BaselineError: it cannot be read, or is none.
    """
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise BaselineError(path, f"cannot be read: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise BaselineError(path, f"is no fingerprint: {error}") from error
    if not isinstance(document, dict) or "sentinel_fingerprint" not in document:
        raise BaselineError(path, "is no fingerprint (make one with `sentinel fingerprint -o FILE`)")
    return document
