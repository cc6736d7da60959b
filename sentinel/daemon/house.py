# SPDX-License-Identifier: Apache-2.0
"""The daemon put together: Watchdog, HTTP endpoint and clock, from one settings text. With Ray or without."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sentinel import __version__
from sentinel import settings as settings_module
from sentinel.daemon import reloading
from sentinel.daemon.answers import Answers
from sentinel.daemon.diary import Diary
from sentinel.daemon.local_door import LocalDoor
from sentinel.daemon.metric_catalogue import load_catalogue
from sentinel.daemon.planning import Planner
from sentinel.daemon.report_files import replace
from sentinel.daemon.view import DaemonView
from sentinel.daemon.watchdog import Watchdog
from sentinel.errors import SettingsError
from sentinel.settings import Settings
from sentinel.sinks.status_http import StatusServer

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["House", "load_catalogue", "settings_text"]

TICK_SECONDS = 5.0
STATE_FILE = "daemon.json"
SETTINGS_FILE = "settings.json"
"""Settings that were reloaded, and which they replaced."""


class House:
    """A running daemon.

    Args:
        config_text: text of a sentinel.yaml; None for all defaults. One that cannot be used is a remark in the
            status, not the end: the runs are watched all the same.
        serve: False leaves the HTTP endpoint out.
        only: watch over this run, beside another daemon that has the others.
    """

    def __init__(
        self,
        config_text: str | None = None,
        config_path: str | None = None,
        *,
        serve: bool = True,
        only: str | None = None,
    ) -> None:
        self.remarks: dict[str, str] = {}
        """Code -> sentence: what is wrong with the daemon itself."""
        self.config_path = config_path
        self._given = hashlib.sha256((config_text or "").encode("utf-8", "backslashreplace")).hexdigest()
        settings = self._settings(config_text, config_path)
        self.diary = Diary(settings.home_folder if only is None else None)
        self.watchdog = Watchdog(settings, Planner(settings, load_catalogue()), only=only, diary=self.diary)
        kept = self._recall()
        self.restarts = int(kept.get("starts", 0))
        self.server = self._serve(kept) if serve else None
        self.door = self._open_door()
        self.answers = Answers(self)
        self._remember()
        self.diary.write(
            "started", version=__version__, pid=os.getpid(), endpoint=self.endpoint, restarts=self.restarts
        )
        for code, why in self.remarks.items():
            self.diary.write("remark", level="warning", code=code, why=why)
        self._stop = threading.Event()
        self._ticker = threading.Thread(target=self._tick, name="sentinel-clock", daemon=True)
        self._ticker.start()

    @property
    def endpoint(self) -> str | None:
        """Address of the status page; None where none is served."""
        return self.server.url if self.server is not None else None

    def report(self, message: object) -> dict[str, Any]:
        """Answer a trainer, and tell it the short way in, which is of use on this host only."""
        answer = self.watchdog.report(message)
        return {**answer, "door": self.door.address} if self.door is not None else answer

    def close(self) -> None:
        """Put everything down, journals written."""
        self._stop.set()
        if self.door is not None:
            self.door.close()
        if self.server is not None:
            self.server.close()
        self.watchdog.close()
        self.diary.write("ended")
        self.diary.close()

    def reload(self, text: str | None = None, path: str | None = None) -> dict[str, Any]:
        """Go on with new settings; see `reloading`.

        Raises:
            SettingsError: they cannot be used, and nothing was changed; the status says so, too.
        """
        try:
            done = reloading.reload(self, text, path)
        except SettingsError as error:
            self.remarks["reload"] = f"the daemon goes on with the settings that it had: {error}"
            self.diary.write("reload", level="error", why=str(error))
            raise
        self.remarks.pop("reload", None)
        self.remarks.pop("settings", None)
        self.diary.write("reload", **done)
        return done

    def hang_up(self) -> None:
        """SIGHUP: read the settings file again; what is wrong with it is in the status and in the log."""
        with contextlib.suppress(SettingsError):
            self.reload()

    def remember_settings(self, text: str, path: str | None) -> None:
        """Keep settings that were reloaded: a successor is started with the text of before."""
        self.config_path = path
        try:
            kept = self.watchdog.home / SETTINGS_FILE
            # A webhook's address often holds its secret: nobody else reads it, not even while it is written.
            kept.touch(mode=0o600)
            kept.chmod(0o600)
            kept.write_text(json.dumps({"given": self._given, "text": text, "path": path}), encoding="utf-8")
        except OSError as error:
            self.remarks["home"] = f"{self.watchdog.home}: {error.strerror}; nothing survives a restart"

    def _settings(self, text: str | None, path: str | None) -> Settings:
        try:
            given = Settings() if text is None else settings_module.parse(text, path or "sentinel.yaml")
            later = reloading.stored(given.home_folder / SETTINGS_FILE, self._given)
            if later is None:
                return given
            self.config_path = later[1]
            renewed = settings_module.parse(later[0], later[1] or "sentinel.yaml")
            # What waited for a restart counts now; `home` is where all this was found.
            return dataclasses.replace(renewed, home=given.home)
        except SettingsError as error:
            self.remarks["settings"] = f"the daemon's settings are not used: {error}"
            return Settings()

    def _serve(self, kept: Mapping[str, Any]) -> StatusServer | None:
        http = self.watchdog.settings.http
        # A successor answers where its predecessor did, so that scrapers and bookmarks find it.
        port = kept.get("port") if kept.get("asked_port") == http.port else None
        try:
            server = StatusServer(http, DaemonView(self), port=port)
        except SettingsError as error:
            self.remarks["http"] = f"no page and no metrics are served: {error}"
            return None
        if server.remark is not None:
            self.remarks["http"] = server.remark
        self.watchdog.deeds.endpoint = server.url
        return server

    def _open_door(self) -> LocalDoor | None:
        try:
            return LocalDoor(self.watchdog.report)
        except OSError:
            # No abstract sockets here: the way over Ray serves everybody.
            return None

    def _recall(self) -> dict[str, Any]:
        with contextlib.suppress(OSError, ValueError):
            kept = json.loads((self.watchdog.home / STATE_FILE).read_text(encoding="utf-8"))
            if isinstance(kept, dict):
                return kept
        return {}

    def _remember(self) -> None:
        port = self.server.port if self.server is not None else None
        kept = {"starts": self.restarts + 1, "port": port, "asked_port": self.watchdog.settings.http.port}
        try:
            self.watchdog.home.mkdir(parents=True, exist_ok=True)
            replace(self.watchdog.home / STATE_FILE, json.dumps(kept))
        except OSError as error:
            self.remarks["home"] = f"{self.watchdog.home}: {error.strerror}; nothing survives a restart"

    def _tick(self) -> None:
        while not self._stop.wait(TICK_SECONDS):
            self._tick_once()

    def _tick_once(self) -> None:
        try:
            self.watchdog.tick()
        except Exception as error:  # noqa: BLE001  # the clock must go on
            self.watchdog.deeds.faults.append(f"tick: {type(error).__name__}: {error}")


def settings_text(path: str | Path | None) -> str | None:
    """Return the text of a settings file; None where no path is given.

    Raises:
        SettingsError: it cannot be read or does not say what can be used.
    """
    if path is None:
        return None
    settings_module.load(path)
    return Path(path).read_text(encoding="utf-8")
