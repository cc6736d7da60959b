# SPDX-License-Identifier: Apache-2.0
"""msprobe dumps for tests: real ones out of tests/data/dumps.zip, and ways to spoil them."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable
from pathlib import Path

ARCHIVE = Path(__file__).parent.parent / "data" / "dumps.zip"


def unpack(name: str, folder: Path) -> Path:
    """Unpack the real dump `name` below `folder` and return the folder that msprobe would have been given."""
    with zipfile.ZipFile(ARCHIVE) as archive:
        members = [member for member in archive.namelist() if member.startswith(f"{name}/")]
        assert members, name
        archive.extractall(folder, members)
    return folder / name


def edit(root: Path, change: Callable[[dict], object], *, file: str = "dump.json") -> Path:
    """Rewrite the dump.json of the only rank below `root` with `change` applied, and return `root`."""
    path = next(root.rglob(file))
    found = json.loads(path.read_text())
    change(found)
    path.write_text(json.dumps(found))
    return root


def tensors(entry: object) -> list[dict]:
    """Every tensor of an entry."""
    if isinstance(entry, dict):
        if "shape" in entry:
            return [entry]
        return [tensor for value in entry.values() for tensor in tensors(value)]
    if isinstance(entry, list):
        return [tensor for value in entry for tensor in tensors(value)]
    return []
