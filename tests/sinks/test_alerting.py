"""Alerts by HTTP."""

import pytest

from sentinel.records import Finding, Incident, Suspect
from sentinel.sinks.alerting import Alerts, AlertSettings, alertmanager_form, title
from tests.support.receiver import Receiver


def incident(**other):
    given = {
        "id": "run 1:1",
        "run": "run 1",
        "kind": "drift",
        "state": "open",
        "opened_at_step": 7,
        "closed_at_step": None,
        "severity": "critical",
        "stage": "actor_update",
        "suspects": (Suspect("actor_update", 0.9),),
        "findings": (Finding("drift", "actor/grad_norm", 7, float("nan"), None, "it is NaN"),),
        "because": "actor/grad_norm is NaN at step 7",
    }
    return Incident(**{**given, **other})


@pytest.fixture
def receiver(request):
    made = Receiver(*getattr(request, "param", (200,)))
    yield made
    made.close()


def alerts(url, **other):
    return Alerts(AlertSettings(webhook=url, **other), pause=lambda seconds: None)


def test_a_webhook_gets_the_incident_without_bare_nan(receiver):
    """The document is JSON that every parser reads, with title, text and a link."""
    sender = Alerts(AlertSettings(webhook=receiver.url + "/hook"), endpoint=lambda: "http://127.0.0.1:1/")

    assert sender.send(incident(), "opened", {"value": float("nan")}) == ()
    path, body = receiver.got[0]
    assert path == "/hook"
    assert body["incident"] == {"value": "nan"}
    assert body["title"] == "[critical] run 1: drift in actor_update since step 7"
    assert body["report_url"] == "http://127.0.0.1:1/reports/run%201%3A1"


@pytest.mark.parametrize(
    ("answer", "refused"),
    [
        (b'{"errcode": 300001, "errmsg": "param error"}', True),
        (b'{"code": 19002, "msg": "params error, msg_type need", "data": {}}', True),
        (b'{"errcode": 0, "errmsg": "ok"}', False),
        (b'{"code": 0, "msg": "success", "StatusCode": 0}', False),
        (b'{"code": 200, "msg": "OK"}', False),
        (b'{"code": 7}', False),
        (b"ok", False),
        (b"[1]", False),
        (b"", False),
    ],
)
def test_a_chat_robot_that_refuses_in_its_answer_is_not_taken_for_delivery(answer, refused):
    """Robots say 200 to a message that is not of their form; nobody would ever see it."""
    receiver = Receiver(200, answer=answer)
    failures = alerts(receiver.url + "/robot/send?access_token=HIDDEN").send(incident(), "opened", {})
    receiver.close()

    assert len(receiver.got) == 1
    assert bool(failures) == refused
    if refused:
        assert "bridge.py" in failures[0]
        assert "HIDDEN" not in failures[0]


def test_alertmanager_gets_one_alert_with_stable_labels(receiver):
    """Alertmanager's v2 form: labels that group, annotations that explain."""
    sender = Alerts(AlertSettings(alertmanager=receiver.url + "/"))

    assert sender.send(incident(), "opened", {}) == ()
    path, (alert,) = receiver.got[0]
    assert path == "/api/v2/alerts"
    assert alert["labels"]["incident"] == "run 1:1"
    assert "endsAt" not in alert


def test_a_closed_incident_resolves_its_alert():
    """The same labels with an end."""
    still, over = (alertmanager_form(incident(state=state), None) for state in ("open", "closed"))

    assert over["labels"] == still["labels"]
    assert "endsAt" in over
    assert title(incident(state="closed")).startswith("[closed]")


@pytest.mark.parametrize("receiver", [(500, 503, 200)], indirect=True)
def test_a_receiver_in_trouble_is_asked_again(receiver):
    """Two failures and then success is success."""
    assert alerts(receiver.url).send(incident(), "opened", {}) == ()
    assert len(receiver.got) == 3


@pytest.mark.parametrize("receiver", [(500,)], indirect=True)
def test_a_receiver_that_stays_in_trouble_is_a_sentence_without_the_secret(receiver):
    """Three attempts, then a failure that names the host but not the URL's secret."""
    (why,) = alerts(receiver.url + "/token-1234").send(incident(), "opened", {})

    assert len(receiver.got) == 3
    assert "answered 500" in why
    assert "token-1234" not in why


@pytest.mark.parametrize("receiver", [(404,)], indirect=True)
def test_a_refusal_is_not_repeated(receiver):
    """A receiver that says 404 will say so again."""
    assert len(alerts(receiver.url).send(incident(), "opened", {})) == 1
    assert len(receiver.got) == 1


def test_nobody_listening_is_a_sentence():
    """A webhook that is not there does not raise."""
    (why,) = alerts("http://127.0.0.1:9/x").send(incident(), "opened", {})

    assert "127.0.0.1" in why


def test_only_what_matters_is_announced():
    """Openings, explanations and closings; not each step, and not below the asked severity."""
    sender = alerts("http://x")

    assert [sender.wants(incident(), change) for change in ("opened", "grew", "evidence", "closed")] == [
        True,
        False,
        True,
        True,
    ]
    assert not alerts("http://x", min_severity="critical").wants(incident(severity="warning"), "opened")
    assert not Alerts(AlertSettings()).wants(incident(), "opened")


@pytest.mark.parametrize(
    ("given", "word"),
    [
        ({"webhook": "file:///etc/passwd"}, "http"),
        ({"min_severity": "high"}, "warning"),
        ({"timeout_seconds": 0}, "above 0"),
    ],
)
def test_settings_out_of_range_are_refused(given, word):
    """Wrong values say what would be right."""
    with pytest.raises(ValueError, match=word):
        AlertSettings(**given)
