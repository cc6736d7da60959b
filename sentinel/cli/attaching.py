# SPDX-License-Identifier: Apache-2.0
"""Following the log of a run that goes on without Sentinel: its steps go to the daemon, or to a watch in this process."""

from __future__ import annotations

import hashlib
import json
import threading
import time
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from sentinel.cli import cluster, output
from sentinel.cli.attached_captures import AttachedCaptures
from sentinel.daemon.house import House
from sentinel.daemon.report_files import replace
from sentinel.errors import DaemonError, SettingsError, UnreadableLog
from sentinel.settings import Settings, load, parse
from sentinel.sinks.msprobe_config import MsprobeSwitch
from sentinel.sources import Follower, follow
from sentinel.storage.run_folders import run_slug

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

    from sentinel.records import Reading, Warned
    from sentinel.sources import FollowResult

BATCH = 200
"""Steps in one message."""


class Listener(Protocol):
    """Who is told: the daemon of a cluster, or one in this process."""

    def report(self, message: Mapping[str, Any]) -> Mapping[str, Any]:
        """Tell what a trainer would tell."""

    def query(self, what: str, question: Mapping[str, Any]) -> Mapping[str, Any]:
        """Ask what a person would ask."""

    def close(self) -> None:
        """Let go."""


PATIENT_STEPS = 1000
"""Steps after which a dump by a script's own debugger is given up without a word from here."""


class Local:
    """A watch in this process, over one run, with the same journal and the same page."""

    def __init__(self, text: str | None, path: str | None, run: str, *, serve: bool) -> None:
        self._house = House(text, path, serve=serve, only=run)
        if self._house.endpoint is not None:
            output.note(f"status page and metrics: {self._house.endpoint}")

    def report(self, message: Mapping[str, Any]) -> Mapping[str, Any]:
        """Tell it."""
        return self._house.watchdog.report(message)

    def query(self, what: str, question: Mapping[str, Any]) -> Mapping[str, Any]:
        """Ask it, when all that was begun is done."""
        self._house.watchdog.deeds.wait(10.0)
        return self._house.answers.answer(what, question)

    def close(self) -> None:
        """Write everything down."""
        self._house.close()


class Remote:
    """The daemon of the cluster."""

    def __init__(self, args: argparse.Namespace) -> None:
        self._seconds = args.timeout
        self._actor: Any = cluster.within(args.timeout, lambda: cluster.daemon_of(args))

    def report(self, message: Mapping[str, Any]) -> Mapping[str, Any]:
        """Tell it."""
        return self._call(self._actor.report.remote(dict(message)))

    def query(self, what: str, question: Mapping[str, Any]) -> Mapping[str, Any]:
        """Ask it."""
        return self._call(self._actor.query.remote(what, dict(question)))

    def close(self) -> None:
        """Leave it running."""

    def _call(self, reference: Any) -> Mapping[str, Any]:
        import ray

        answer: Mapping[str, Any] = cluster.within(self._seconds, lambda: ray.get(reference, timeout=self._seconds))
        return answer


class Attachment:
    """One followed log.

    Args:
        log: path of the metric file.
        run: name that its run has.
        listener: who is told.
        config: path and text of the settings; None for defaults.
        place: file that keeps how far the log was read.
        captures: obeys orders where the run dumps by a config.json that can be switched; None: nothing can be dumped.
    """

    def __init__(
        self,
        log: Path,
        run: str,
        listener: Listener,
        config: Mapping[str, str | None] | None,
        place: Path,
        *,
        captures: AttachedCaptures | None = None,
    ) -> None:
        self.steps = 0
        self.warnings: dict[str, str] = {}
        self.follower = Follower(log, state=_recalled(place))
        self._run = run
        self._listener = listener
        self._place = place
        self._session = hashlib.sha256(str(log).encode("utf-8", "surrogateescape")).hexdigest()[:16]
        self._shown: set[tuple[str, str]] = set()
        self._captures = captures
        self._last_step = 0
        facts: dict[str, Any] = {"trainer": "attached", "log": str(log)}
        if captures is not None:
            facts = {"trainer": "msprobe", "log": str(log), "stages": [captures.stage]}
        self._send([{"t": "start", "at": time.time(), "facts": facts, "config": config}])

    def take(self, result: FollowResult) -> None:
        """Tell what one look at the log brought, then remember how far it was read."""
        now = time.time()
        records = [_step(reading, now) for reading in result.readings]
        records += [_said(warning, now) for warning in result.warnings]
        self._last_step = max((reading.step for reading in result.readings), default=self._last_step)
        for begin in range(0, len(records), BATCH):
            self._send(records[begin : begin + BATCH])
        self.steps += len(result.readings)
        self.warnings.update({warning.code: warning.text for warning in result.warnings})
        self._place.parent.mkdir(parents=True, exist_ok=True)
        replace(self._place, json.dumps(self.follower.to_plain()))

    def tell_news(self) -> None:
        """Say on standard error which incidents are new or changed state."""
        for row in self._listener.query("incidents", {"run": self._run})["incidents"]:
            if (row["id"], row["state"]) not in self._shown:
                self._shown.add((row["id"], row["state"]))
                output.note(
                    f"{row['state']}: {row['kind']} in {row['stage']} since step {row['opened_at_step']}: {row['because']}"
                )

    def document(self) -> dict[str, Any]:
        """Return what was found."""
        rows = self._listener.query("incidents", {"run": self._run})["incidents"]
        incidents = [dict(self._listener.query("incident", {"id": row["id"]})) for row in rows]
        return {"run": self._run, "steps": self.steps, "incidents": incidents, "warnings": list(self.warnings)}

    def close(self) -> None:
        """Say goodbye; the run itself may go on."""
        if self._captures is not None:
            self._send(self._captures.close(self._last_step))
        self._send([{"t": "end", "at": time.time(), "finished": False}])
        self.follower.close()

    def _send(self, records: list[dict[str, Any]]) -> None:
        message = {"v": 1, "run": self._run, "session": self._session}
        while True:
            reply = self._listener.report({**message, "records": records})
            records = self._captures.take(reply, self._last_step) if self._captures is not None else []
            if not records:
                return


def attach(args: argparse.Namespace) -> dict[str, Any]:
    """Follow the log as the arguments say and return what was found.

    Raises:
        SettingsError: the settings are at fault.
        UnreadableLog: the log is not there, or is of no known format.
        DaemonError: the daemon refused or went away.
    """
    log = Path(args.log).absolute()
    if not args.follow and not log.exists():
        raise UnreadableLog(log, "unreadable", "no such file (with --follow it may come later)")
    text, path, settings = _settings(args)
    captures = None
    if args.msprobe_config is not None:
        captures = AttachedCaptures(MsprobeSwitch(args.msprobe_config), args.msprobe_stage, args.msprobe_first_step)
    listener = _listener(args, text, path)
    place = settings.home_folder / "attached" / f"{run_slug(f'{args.name} {log}')}.json"
    config = {"path": path, "text": text}
    attachment = Attachment(log, args.name, listener, config, place, captures=captures)
    try:
        if args.follow:
            _go_on(attachment)
        else:
            _once(attachment, log)
        return attachment.document()
    finally:
        attachment.close()
        listener.close()


def _once(attachment: Attachment, log: Path) -> None:
    more = True
    while more:
        result = attachment.follower.poll(time.time())
        attachment.take(result)
        more = result.more
        if result.format is None:
            why = next((warning.text for warning in result.warnings), "of no known format")
            raise UnreadableLog(log, "unknown_format", why)
    # Nothing more will come: a last line without its end is judged too.
    attachment.take(attachment.follower.finish(time.time()))


def _go_on(attachment: Attachment) -> None:
    output.note(f"following {attachment.follower.path} (Ctrl-C ends it; the run is not touched)")

    def on_result(_: str, result: FollowResult) -> None:
        attachment.take(result)
        attachment.tell_news()

    try:
        follow({"log": attachment.follower}, on_result, threading.Event())
    except KeyboardInterrupt:
        output.note("no longer followed")


def _settings(args: argparse.Namespace) -> tuple[str, str | None, Settings]:
    """Return text, path and form of the settings, the baseline of the command line in it."""
    import yaml

    mapping: dict[str, Any] = {}
    path = None
    if args.config is not None:
        load(args.config)
        path = str(Path(args.config).absolute())
        mapping = yaml.safe_load(Path(path).read_text(encoding="utf-8")) or {}
    if args.baseline is not None:
        baseline = Path(args.baseline).absolute()
        if not baseline.exists():
            raise SettingsError(f"--baseline {baseline}: no such file")
        mapping["baseline"] = str(baseline)
    if args.msprobe_config is not None:
        # msprobe looks at its file every 3 s, however short the steps; what is given up is told by the one who obeys.
        engine = dict(mapping.get("engine") or {})
        mapping["engine"] = {"receipt_grace_steps": PATIENT_STEPS, **engine}
    text = yaml.safe_dump(mapping)
    return text, path, parse(text, path or "settings")


def _listener(args: argparse.Namespace, text: str, path: str | None) -> Listener:
    if not args.local:
        try:
            return Remote(args)
        except cluster.AbsentError:
            pass
        except DaemonError as error:
            output.note(f"{error}: watching in this process")
    return Local(text, path, args.name, serve=args.follow)


def _recalled(place: Path) -> Mapping[str, Any] | None:
    try:
        kept = json.loads(place.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return kept if isinstance(kept, dict) else None


def _step(reading: Reading, now: float) -> dict[str, Any]:
    """Return a step as a trainer would tell it; `n` tells it apart from one that was told before."""
    content = repr((reading.attempt, sorted(reading.metrics.items()))).encode()
    return {"t": "step", "step": reading.step, "at": now, "n": zlib.crc32(content), "values": dict(reading.metrics)}


def _said(warning: Warned, now: float) -> dict[str, Any]:
    return {"t": "said", "code": warning.code, "text": warning.text, "at": now}
