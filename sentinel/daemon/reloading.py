# SPDX-License-Identifier: Apache-2.0
"""New settings for a daemon that runs: what can be changed under it is, the rest is named and waits for a restart.

At once: where alerts go, tokens and certificates (also renewed ones under the same names), and what runs without
settings of their own are watched with, from their next start on. After a restart only: `home`, where everything lies,
and the address of the endpoint, which scrapers know. A run's own settings come from its trainer.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sentinel import settings as settings_module
from sentinel.core.checklist import flatten
from sentinel.errors import SettingsError

if TYPE_CHECKING:
    from sentinel.daemon.house import House
    from sentinel.settings import Settings

AFTER_RESTART = ("home", "http.host", "http.port")


def reload(house: House, text: str | None = None, path: str | None = None) -> dict[str, Any]:
    """Let a daemon go on with new settings; those that cannot be used change nothing.

    Args:
        house: the daemon.
        text: of a sentinel.yaml; None: of the file that it was started with, or that `path` names on its machine.
        path: where the text lies, for relative paths.

    Returns:
        The keys that changed: `applied` now, or `after_restart`.

    Raises:
        SettingsError: the settings are at fault, or their file cannot be read.
    """
    where = path or house.config_path
    if text is None:
        text = _read(where)
    wanted = settings_module.parse(text, where or "sentinel.yaml")
    before = house.watchdog.settings
    changed = changed_keys(before, wanted)
    waiting = tuple(key for key in changed if key in AFTER_RESTART)
    address = any(key.startswith("http.") for key in waiting)
    if address:
        # Who may ask goes with where it is asked.
        waiting += tuple(key for key in changed if key.startswith("http.") and key not in waiting)
    in_force = dataclasses.replace(wanted, home=before.home, http=before.http if address else wanted.http)
    if house.server is not None:
        house.server.renew(in_force.http)
    house.watchdog.use(in_force)
    house.remember_settings(text, where)
    return {"applied": [key for key in changed if key not in waiting], "after_restart": list(waiting)}


def changed_keys(before: Settings, after: Settings) -> tuple[str, ...]:
    """Return the dotted names of the settings that differ, sorted."""
    old, new = (flatten(dataclasses.asdict(one)) for one in (before, after))
    return tuple(sorted(key for key in {*old, *new} if old.get(key) != new.get(key)))


def stored(path: Path, given: str) -> tuple[str, str | None] | None:
    """Return text and place of the settings that a predecessor, started with the text `given`, went on with."""
    try:
        kept = json.loads(path.read_text(encoding="utf-8"))
        return (str(kept["text"]), kept.get("path")) if kept["given"] == given else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _read(where: str | None) -> str:
    if where is None:
        raise SettingsError("the daemon was started without a settings file; name one with --config")
    try:
        return Path(where).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{where}: {getattr(error, 'strerror', None) or error}") from error
