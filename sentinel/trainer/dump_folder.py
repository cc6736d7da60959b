# SPDX-License-Identifier: Apache-2.0
"""Where a capture writes: a folder that msprobe accepts, and from it, whole and at once, the place that people know."""

from __future__ import annotations

import functools
import json
import os
import re
import shutil
import tempfile
from typing import Any

from sentinel.trainer.fuse import attempt

# msprobe refuses every other character, often with an empty message.
_SAFE_PATH = re.compile(r"[a-zA-Z0-9_.:/-]+")
_SHORT_BYTES = 4096
_JSON_FILES = ("dump.json", "stack.json", "construct.json")
_MOST_TIGHTENED = 256 * 1024 * 1024
DEFAULT_MIN_FREE_BYTES = 256 * 1024 * 1024


class ProbeError(Exception):
    """A capture cannot be made here; the text says why, for the receipt."""


class DumpFolder:
    """The folder of one captured step in this process.

    Args:
        root: where dumps shall lie, as `<root>/step_<N>/<stage>/step0/rank<r>/`.
        step: the step that is dumped.
        needed_bytes: free space that is asked for beforehand; msprobe raises inside backward when a disk fills up.
        rank: of this process, which msprobe knows only under a process group.
    """

    def __init__(self, root: str, step: int, needed_bytes: int, rank: int = 0) -> None:
        self.root = root
        self.step = step
        self.rank = rank
        self.staging = ""
        self._needed = needed_bytes

    def open(self) -> None:
        """Make the folder that msprobe writes to.

        Raises:
            ProbeError: it is full or cannot be written.
        """
        try:
            os.makedirs(self.root, exist_ok=True)
            free = shutil.disk_usage(self.root).free
        except OSError as error:
            raise ProbeError(f"dump folder {self.root}: {error.strerror or error}") from error
        if free < self._needed:
            raise ProbeError(f"dump folder {self.root}: {free} bytes free, {self._needed} are asked for")
        try:
            self.staging = self._writable()
        except OSError as error:
            raise ProbeError(f"dump folder {self.root}: not writable ({error.strerror or error})") from error

    def _writable(self) -> str:
        """A folder that msprobe accepts: below the root, or a temporary one when a character forbids that."""
        if _SAFE_PATH.fullmatch(self.root):
            folder = os.path.join(self.root, f".sentinel_{os.getpid()}_{self.step}")
            os.makedirs(folder, exist_ok=True)
            return folder
        if not os.access(self.root, os.W_OK | os.X_OK):
            raise ProbeError(f"dump folder {self.root}: not writable")
        folder = tempfile.mkdtemp(prefix="sentinel_")
        if not _SAFE_PATH.fullmatch(folder):
            shutil.rmtree(folder, ignore_errors=True)
            raise ProbeError(
                f"neither {self.root} nor {folder} is a path that msprobe accepts (letters, digits, _.:/-)"
            )
        return folder

    def of(self, stage: str) -> str:
        """Return msprobe's dump path for a stage, made."""
        path = os.path.join(self.staging, f"step_{self.step}", stage)
        os.makedirs(path, exist_ok=True)
        return path

    def place(self, stages: dict[str, dict[str, Any]]) -> None:
        """Let the finished stages appear under the root at once, whole; note their paths and sizes. Leaves no staging behind.

        Raises:
            OSError: the root is gone, full, or no longer writable.
            ProbeError: a dump holds nothing; the others are in their place.
        """
        empty = []
        if not self.staging:
            return
        staged_step = os.path.join(self.staging, f"step_{self.step}")
        try:
            for stage, entry in stages.items():
                source = os.path.join(staged_step, stage, "step0")
                if not entry.get("calls") or not os.path.isdir(source):
                    continue
                if all(_is_empty(os.path.join(source, rank)) for rank in os.listdir(source)):
                    empty.append(stage)
                    continue
                target = os.path.join(self.root, f"step_{self.step}", stage)
                for rank in sorted(os.listdir(source)):
                    place = os.path.join(target, "step0", rank if rank.startswith("rank") else f"rank{self.rank}")
                    shutil.rmtree(place, ignore_errors=True)
                    os.makedirs(os.path.dirname(place), exist_ok=True)
                    for name in _JSON_FILES:
                        # A file that cannot be written anew stays as msprobe wrote it.
                        attempt(functools.partial(_tighten, os.path.join(source, rank, name)))
                    shutil.move(os.path.join(source, rank), place)
                    entry["bytes"] = int(entry.get("bytes", 0)) + _size_of(place)
                entry["path"] = target
        finally:
            shutil.rmtree(self.staging, ignore_errors=True)
            self.staging = ""
        if empty:
            raise ProbeError(f"the dump of {', '.join(empty)} holds nothing")


def _tighten(path: str) -> None:
    """Take the white space out of a JSON file, which is half of it; NaN and Infinity stay as they stand."""
    if os.path.getsize(path) > _MOST_TIGHTENED:
        return
    with open(path, encoding="utf-8") as stream:
        document = json.load(stream)
    fresh = f"{path}.new"
    with open(fresh, "w", encoding="utf-8") as stream:
        json.dump(document, stream, separators=(",", ":"), ensure_ascii=False)
    os.replace(fresh, path)


def _is_empty(folder: str) -> bool:
    """Whether a rank's dump has no entry; one that is long enough has."""
    file = os.path.join(folder, "dump.json")
    if not os.path.isfile(file) or os.path.getsize(file) > _SHORT_BYTES:
        return False
    with open(file, encoding="utf-8") as stream:
        return not json.load(stream).get("data")


def _size_of(folder: str) -> int:
    return sum(os.path.getsize(os.path.join(where, name)) for where, _, names in os.walk(folder) for name in names)
