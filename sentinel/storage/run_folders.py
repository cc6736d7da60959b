# SPDX-License-Identifier: Apache-2.0
"""Folder names for runs: any run name becomes a safe and unique one, and the true name lies inside.

A run name comes from a user's environment variable or hydra override: it may hold slashes, newlines, quotes,
any script, or ten thousand characters.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

NAME_FILE = "run.json"
# Ext4 and most shares allow 255 bytes; people should still be able to read a listing.
READABLE_LENGTH = 48
HASH_LENGTH = 12


def run_slug(run: str) -> str:
    """Return a folder name for a run: its readable characters, then a hash of the true name.

    The hash is always there, so that two names never meet, also on file systems that ignore case.
    """
    digest = hashlib.sha256(run.encode("utf-8", "surrogatepass")).hexdigest()[:HASH_LENGTH]
    readable = re.sub(r"[^A-Za-z0-9._-]+", "_", run).strip("._-")[:READABLE_LENGTH]
    return f"{readable or 'run'}-{digest}"


def journal_folder(home: Path, run: str) -> Path:
    """Return where the journal of a run lies: `<home>/journal/<slug>`."""
    return home / "journal" / run_slug(run)


def write_run_name(folder: Path, run: str) -> None:
    """Store the true name of a run in its folder, unless it stands there already."""
    if read_run_name(folder) == run:
        return
    text = json.dumps({"run": run}) + "\n"
    temporary = folder / f".{NAME_FILE}.{os.getpid()}"
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(folder / NAME_FILE)


def read_run_name(folder: Path) -> str | None:
    """Return the true name of the run whose folder this is; None where it cannot be told."""
    try:
        name = json.loads((folder / NAME_FILE).read_text(encoding="utf-8"))["run"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return name if isinstance(name, str) else None


def journalled_runs(home: Path) -> dict[str, Path]:
    """Return every run that has a journal under `home`: true name -> folder, ordered by name."""
    found: dict[str, Path] = {}
    root = home / "journal"
    if not root.is_dir():
        return found
    for folder in sorted(root.iterdir()):
        name = read_run_name(folder)
        if name is not None:
            found[name] = folder
    return dict(sorted(found.items()))
