# SPDX-License-Identifier: Apache-2.0
"""The configuration of a run, from whatever shows it: a log's printed block, a launch script, a file of values."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import yaml

from sentinel.errors import BaselineError
from sentinel.facts.secrets import clean_plain
from sentinel.facts.variables import variable_facts
from sentinel.sources.composed_config import NotComposedError, compose
from sentinel.sources.launch_script import Launch, NoLaunchError, read_launch
from sentinel.sources.printed_config import BrokenConfigError, printed_config


def config_facts(*, log: Path | None = None, launch: Path | None = None) -> dict[str, object]:
    """Return what is known of a run's configuration.

    Args:
        log: console log, which shows the values in force.
        launch: launch script, which shows what was written; composed with verl's defaults where there is no log.

    Returns:
        `{"effective": nested?, "explicit": {dotted: value}?, "unresolved": [key], "exports": {name: text},
        "source": text?, "why": {"effective": text?, "explicit": text?}, "notes": [text]}`.

    Raises:
        SettingsError, UnreadableLog: a file cannot be read.
    """
    why: dict[str, str] = {}
    facts: dict[str, Any] = {"why": why, "unresolved": [], "exports": {}, "notes": []}
    started: Launch | None = None
    if launch is not None:
        try:
            started = read_launch(launch)
        except NoLaunchError as error:
            why["explicit"] = f"{launch.name}: {error}"
    if started is not None:
        facts["explicit"] = clean_plain(started.overrides)
        facts["unresolved"] = list(started.unresolved)
        facts["exports"] = variable_facts(started.exports)
        facts["notes"] = [f"{launch.name}: {note}" for note in started.notes] if launch else []
        facts["named"] = bool(started.exports.get("SENTINEL_RUN") or started.exports.get("SENTINEL_CONFIG"))
        facts["disabled"] = started.exports.get("SENTINEL_DISABLED", "") not in ("", "0")
    if log is not None:
        try:
            facts |= {"effective": clean_plain(printed_config(log)), "source": "the block printed in the log"}
        except BrokenConfigError as error:
            why["effective"] = f"{log.name}: {error}"
    elif started is not None:
        facts |= _composed(started, why)
    return facts


def _composed(started: Launch, why: dict[str, str]) -> dict[str, Any]:
    """Return the values in force that a launch would have, if nothing of it is unresolved."""
    if started.unresolved:
        why["effective"] = f"the launch takes {', '.join(started.unresolved[:3])} from elsewhere; give --log"
        return {}
    if "arguments that are given to the script are not known" in started.notes:
        why["effective"] = "the launch passes arguments on that are not known; give --log"
        return {}
    try:
        composed = compose(started.written, started.config_name)
    except NotComposedError as error:
        why["effective"] = f"composing: {error}"
        return {}
    return {"effective": clean_plain(composed), "source": "verl's defaults here with the launch's overrides"}


def config_fingerprint(path: Path) -> dict[str, object]:
    """Return the values of a YAML or JSON configuration, or the hash of another kind of file.

    Returns:
        `{"values": {...}}`, or `{"sha256": ...}` for a launch script.

    Raises:
        BaselineError: it cannot be read.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise BaselineError(path, f"cannot be read: {error.strerror or error}") from error
    try:
        values = yaml.safe_load(content)
    except (yaml.YAMLError, RecursionError, ValueError):
        values = None
    if isinstance(values, dict):
        return {"values": clean_plain(values)}
    return {"sha256": hashlib.sha256(content).hexdigest()}
