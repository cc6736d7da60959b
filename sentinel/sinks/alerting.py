# SPDX-License-Identifier: Apache-2.0
"""Alerts by HTTP: a JSON webhook of Sentinel's own, and Alertmanager's v2 API.

For people without a Prometheus. Sending never raises and never waits longer than its bound; what could not be sent is
a sentence for the status page.
"""

from __future__ import annotations

import datetime as dt
import json
import time
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sentinel.sinks import json_text

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from sentinel.records import Incident

SEVERITIES = ("warning", "critical")
_ATTEMPTS = 3
_PAUSE_SECONDS = 0.5
_ANSWER_BYTES = 65536


@dataclass(frozen=True, kw_only=True, slots=True)
class AlertSettings:
    """Where incidents are announced."""

    webhook: str | None = None
    """URL that gets one JSON document by POST when an incident opens, is explained, or closes."""
    alertmanager: str | None = None
    """Base URL of an Alertmanager, e.g. http://127.0.0.1:9093."""
    min_severity: str = "warning"
    """`warning` or `critical`: what is announced at least."""
    timeout_seconds: float = 5.0
    """How long one attempt may take; there are three."""
    page_url: str | None = None
    """How people reach the status page, e.g. https://sentinel.example/; put in front of links to reports."""

    def __post_init__(self) -> None:
        if self.min_severity not in SEVERITIES:
            raise ValueError(f"min_severity is {self.min_severity!r}; it must be one of {', '.join(SEVERITIES)}")
        if not 0 < self.timeout_seconds <= 60:
            raise ValueError(f"timeout_seconds is {self.timeout_seconds}; it must be above 0 and at most 60")
        for name in ("webhook", "alertmanager", "page_url"):
            url = getattr(self, name)
            if url is not None and urllib.parse.urlsplit(url).scheme not in ("http", "https"):
                raise ValueError(f"{name} is {url!r}; it must begin with http:// or https://")


class Alerts:
    """Announces incidents. May be used from several threads."""

    def __init__(
        self,
        settings: AlertSettings,
        *,
        endpoint: Callable[[], str | None] = lambda: None,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._settings = settings
        self._endpoint = endpoint
        self._pause = pause

    def wants(self, incident: Incident, change: str) -> bool:
        """Return whether this change is announced: openings, explanations and closings, not each step."""
        settings = self._settings
        if not (settings.webhook or settings.alertmanager) or change == "grew":
            return False
        return SEVERITIES.index(settings.min_severity) <= (
            SEVERITIES.index(incident.severity) if incident.severity in SEVERITIES else 0
        )

    def send(self, incident: Incident, change: str, document: Mapping[str, object]) -> tuple[str, ...]:
        """Announce a change of an incident everywhere; return what failed, one sentence each.

        Args:
            incident: the incident as it is now.
            change: opened, evidence or closed.
            document: the INCIDENT form of the contract.
        """
        report = self.report_url(incident)
        failures: list[str] = []
        if self._settings.webhook:
            body = {
                "version": 1,
                "change": change,
                "title": title(incident),
                "text": incident.because,
                "report_url": report,
                "incident": document,
            }
            failures += self._post("webhook", self._settings.webhook, body)
        if self._settings.alertmanager:
            url = self._settings.alertmanager.rstrip("/") + "/api/v2/alerts"
            failures += self._post("Alertmanager", url, [alertmanager_form(incident, report)])
        return tuple(failures)

    def report_url(self, incident: Incident) -> str | None:
        """Return where the incident's report can be read; None where no page is served."""
        base = self._settings.page_url or self._endpoint()
        return None if base is None else f"{base.rstrip('/')}/reports/{urllib.parse.quote(incident.id, safe='')}"

    def _post(self, name: str, url: str, body: Mapping[str, object] | Sequence[object]) -> list[str]:
        """POST with three attempts; a refusal by the receiver (4xx) is not repeated."""
        data = json_text.to_text(body).encode()
        why = ""
        for attempt in range(_ATTEMPTS):
            if attempt:
                self._pause(_PAUSE_SECONDS * 2 ** (attempt - 1))
            request = urllib.request.Request(  # noqa: S310  # the scheme is checked by the settings
                url, data=data, headers={"Content-Type": "application/json"}, method="POST"
            )
            try:
                with urllib.request.urlopen(request, timeout=self._settings.timeout_seconds) as answer:  # noqa: S310
                    refusal = robots_refusal(answer.read(_ANSWER_BYTES))
                if refusal is None:
                    return []
                why = refusal
                break
            except urllib.error.HTTPError as error:
                error.close()
                why = f"answered {error.code}"
                if 400 <= error.code < 500:
                    break
            except (OSError, ValueError) as error:
                why = f"{type(error).__name__}: {getattr(error, 'reason', error)}"
        # The URL is not repeated: a webhook's address often holds its secret.
        host = urllib.parse.urlsplit(url).hostname
        return [f"{name} at {host}: {why}"]


def robots_refusal(answer: bytes) -> str | None:
    """Return why the robot of a chat took nothing; None where it did, or where no robot answered.

    DingTalk, WeCom (`errcode`) and Feishu (`code` with `msg`) answer 200 to a message that is not of their own form.
    """
    try:
        said = json.loads(answer)
    except ValueError:
        return None
    if not isinstance(said, dict):
        return None
    code = said.get("errcode", said.get("code") if "msg" in said else None)
    # Other services say 200 in the body, too.
    if not isinstance(code, int) or code in (0, 200):
        return None
    why = str(said.get("errmsg") or said.get("msg") or "")[:100]
    return (
        f"the robot answered {code} {why}; chat robots want their own form: deploy/alertmanager/bridge.py goes between"
    )


def title(incident: Incident) -> str:
    """Return the line that a chat or a pager shows."""
    state = "closed" if incident.state == "closed" else incident.severity
    return f"[{state}] {incident.run}: {incident.kind} in {incident.stage} since step {incident.opened_at_step}"


def alertmanager_form(incident: Incident, report_url: str | None) -> dict[str, object]:
    """Return the incident as one alert of Alertmanager's v2 API; a closed one has ended."""
    alert: dict[str, object] = {
        "labels": {
            "alertname": "SentinelIncident",
            "run": incident.run,
            "incident": incident.id,
            "kind": incident.kind,
            "severity": incident.severity,
            "stage": incident.stage,
        },
        "annotations": {
            "summary": title(incident),
            "description": incident.because,
            **({"report_url": report_url} if report_url else {}),
        },
    }
    if incident.state == "closed":
        alert["endsAt"] = dt.datetime.now(dt.timezone.utc).isoformat()
    return alert
