# SPDX-License-Identifier: Apache-2.0
"""Dumps of a script that already uses PrecisionDebugger, switched by replacing its config.json; nothing of Sentinel is in its process.

msprobe 26.2 reads its file again, every 3 s while off and every 0.5 s while on, if `dump_enable` stood in it when the debugger was
made. A file that is half written turns its dumping off, so it is replaced as a whole.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sentinel.errors import SettingsError

OFF = {"dump_enable": False}
KEPT = "sentinel_own"
"""Key under which the script's own settings stand while it dumps for Sentinel; msprobe does not look at it."""
_SAFE_PATH = re.compile(r"[a-zA-Z0-9_.:/-]+")


class MsprobeSwitch:
    """One config.json.

    Args:
        path: of the file that the running debugger was made with.

    Raises:
        SettingsError: it cannot be read, or a debugger made with it does not look at it again.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path).absolute()
        self._own = self._read()
        if isinstance(self._own.get(KEPT), dict):
            # Whoever switched it on was killed: the script's own file stands in it.
            self._own = self._own[KEPT]
            self.off()
        if not isinstance(self._own.get("dump_enable"), bool):
            raise SettingsError(
                f'{self.path}: has no "dump_enable": msprobe looks at a file again only if that stood in it when the debugger was '
                'made. Write "dump_enable": false into it and start the run again'
            )
        if not os.access(self.path.parent, os.W_OK):
            raise SettingsError(f"{self.path}: its folder cannot be written, so the file cannot be replaced")

    @property
    def own_dump_path(self) -> str:
        """Where the script itself dumps."""
        return str(self._own.get("dump_path") or "")

    def on(self, dump_path: Path, *, level: str, task: str = "statistics", modules: tuple[str, ...] = ()) -> None:
        """Let every step from now on be dumped below `dump_path`.

        Raises:
            SettingsError: the file cannot be replaced.
        """
        if not _SAFE_PATH.fullmatch(str(dump_path)):
            raise SettingsError(
                f"{dump_path}: msprobe accepts paths of letters, digits and _.:/- only; set trainer.dump_root"
            )
        dump_path.mkdir(parents=True, exist_ok=True)
        about: dict[str, Any] = {"scope": [], "list": [f".{name}." for name in modules], "data_mode": ["all"]}
        if task == "statistics":
            about["summary_mode"] = "statistics"
        wanted = {"task": task, "level": level, "dump_path": str(dump_path), "rank": [], "step": [], task: about}
        self._replace({**self._own, **wanted, "dump_enable": True, KEPT: self._own})

    def off(self) -> None:
        """Put the script's own file back, with its dumping off.

        Raises:
            SettingsError: the file cannot be replaced.
        """
        self._replace({**self._own, **OFF})

    def _read(self) -> dict[str, Any]:
        try:
            document = json.loads(self.path.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, ValueError) as error:
            raise SettingsError(f"{self.path}: {getattr(error, 'strerror', None) or error}") from error
        if not isinstance(document, dict):
            raise SettingsError(f"{self.path}: expected the keys of msprobe's config.json")
        return document

    def _replace(self, document: Mapping[str, Any]) -> None:
        try:
            handle, temporary = tempfile.mkstemp(dir=self.path.parent, prefix=f".{self.path.name}.")
            with os.fdopen(handle, "w", encoding="utf-8") as stream:
                json.dump(document, stream, indent=1)
                stream.flush()
                os.fsync(stream.fileno())
            os.chmod(temporary, 0o644)  # noqa: PTH101  # mkstemp's name is text
            Path(temporary).replace(self.path)
        except OSError as error:
            raise SettingsError(f"{self.path}: cannot be replaced: {error.strerror}") from error
