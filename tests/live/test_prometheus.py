# SPDX-License-Identifier: Apache-2.0
"""From a bad step to a message: real daemon endpoint, Prometheus, Alertmanager and webhook, with the shipped rules."""

import json
import math
import subprocess
import time
import urllib.request

import pytest

from sentinel.daemon.house import House
from tests.support.monitoring import DEPLOY, Alertmanager, Hook, Prometheus, report
from tests.support.verl_runs import FAULT_AT, NAN, RecordedRun
from tests.support.watching import Clock, World

pytestmark = [pytest.mark.live, pytest.mark.timeout(180)]
FAULT_TO_MESSAGE_SECONDS = 5.0
LESSER = ("SentinelDrift", "SentinelSpike")


@pytest.fixture
def stack(tmp_path, need):
    """Everything on loopback, with a run that is healthy so far; ended afterwards, last first."""
    need("prometheus", "prometheus-alertmanager")
    (tmp_path / "world").mkdir()
    world = World(tmp_path / "world")
    begun = []

    def keep(thing):
        begun.append(thing)
        return thing

    try:
        house = keep(House(json.dumps({"home": "home", "http": {"port": 0}}), str(tmp_path / "sentinel.yaml")))
        world.watchdog, world.clock = house.watchdog, Clock(time.time())
        hook = keep(Hook())
        alertmanager = keep(Alertmanager(tmp_path, hook))
        target = house.endpoint.removeprefix("http://")
        prometheus = keep(Prometheus(tmp_path, target, alertmanager.url.removeprefix("http://")))
        trainer = world.trainer("exp 1")
        report(trainer, 1, 7)
        prometheus.wait('sentinel_run_last_step{run="exp 1"} == 7')
        yield house, trainer, prometheus, alertmanager, hook
    finally:
        for thing in reversed(begun):
            thing.close()


def test_a_nan_of_a_real_run_is_a_message_within_seconds_and_its_end_is_another(stack, tmp_path):
    """A recorded verl run, told again by the emitter; its dump is in the report that the message links."""
    house, _, prometheus, _, hook = stack
    run = RecordedRun(NAN, house, tmp_path / "dumps")
    run.until(FAULT_AT - 1)
    prometheus.wait(f'sentinel_run_last_step{{run="{NAN}"}} == {FAULT_AT - 1}')

    began = time.monotonic()
    run.until(FAULT_AT)
    at, alert = hook.wait("firing", "SentinelNonFinite", 60)

    took = at - began
    print(f"fault to message: {took:.2f} s")
    assert took < FAULT_TO_MESSAGE_SECONDS
    assert alert["labels"]["run"] == NAN
    assert (alert["labels"]["stage"], alert["labels"]["severity"]) == ("critic_update", "critical")
    assert "critic/grad_norm (NaN)" in alert["annotations"]["description"]
    assert f"step {FAULT_AT}" in alert["annotations"]["description"]
    run.until(FAULT_AT + 2)
    with urllib.request.urlopen(alert["annotations"]["report_url"], timeout=10) as page:
        report_ = page.read().decode()
    assert "critic/grad_norm" in report_
    assert "model.layers.2.mlp.down_proj" in report_

    run.end()
    hook.wait("resolved", "SentinelNonFinite", 60)
    # It is grave enough for the urgent receiver, all of whose webhooks heard of it.
    paths = {path for _, path, body in hook.got if body["groupLabels"]["alertname"] == "SentinelNonFinite"}
    assert paths == {f"/urgent/{name}" for name in ("dingtalk", "feishu", "wecom", "alerts")}


def test_a_nan_holds_back_the_lesser_alerts_of_its_run_and_of_no_other(stack):
    """A drift that turns into NaN a moment later is one message; a drift elsewhere is another."""
    _, trainer, prometheus, alertmanager, hook = stack
    other = trainer.world.trainer("other", "s2")
    report(other, 1, 7)
    prometheus.wait('sentinel_run_last_step{run="other"} == 7')
    for run in (trainer, other):
        report(run, 8, actor__grad_norm=50.0)
    report(trainer, 9, actor__grad_norm=50.0, actor__entropy=math.nan)
    hook.wait("firing", "SentinelNonFinite", 60, run="exp 1")
    _, lesser = hook.wait("firing", LESSER, 60, run="other")

    held = [
        alert["status"]["inhibitedBy"]
        for alert in alertmanager.alerts()
        if (alert["labels"]["alertname"], alert["labels"]["run"]) == (lesser["labels"]["alertname"], "exp 1")
    ]
    assert held
    assert all(held)
    told = [alert["labels"] for _, _, body in hook.got for alert in body["alerts"]]
    assert not [labels for labels in told if labels["run"] == "exp 1" and labels["alertname"] in LESSER]


def test_a_healthy_run_is_silence_and_a_daemon_that_ends_is_not(stack):
    house, trainer, prometheus, _, hook = stack
    report(trainer, 8, 20)
    prometheus.wait('sentinel_run_last_step{run="exp 1"} == 20')
    time.sleep(3)

    assert hook.got == []
    assert prometheus.query('ALERTS{alertstate="firing"}') == []

    house.server.close()
    hook.wait("firing", "SentinelDaemonDown", 60)


def test_a_mail_says_what_and_where(need, tmp_path):
    """The templates, with one notification as data."""
    need("amtool")
    annotations = {"summary": "r: NaN", "description": "9 of 9", "report_url": "http://d/r", "runbook_url": "http://b"}
    alert = {"status": "firing", "labels": {"severity": "critical"}, "annotations": annotations}
    alert |= {"startsAt": "2026-01-02T03:04:05Z", "endsAt": "0001-01-01T00:00:00Z"}
    data = {"status": "firing", "alerts": [alert], "commonAnnotations": annotations, "groupLabels": {}}
    (tmp_path / "data.json").write_text(json.dumps(data))
    command = ["amtool", "template", "render", f"--template.glob={DEPLOY}/alertmanager/templates/*.tmpl"]
    command += [f"--template.data={tmp_path}/data.json"]
    text = '--template.text={{ template "sentinel.subject" . }}|{{ template "sentinel.text" . }}'
    done = subprocess.run([*command, text], capture_output=True, text=True, check=False)

    subject, _, body = done.stdout.partition("|")
    assert (done.returncode, done.stderr) == (0, "")
    assert subject == "[firing 1] r: NaN"
    assert all(part in body for part in ("critical", "9 of 9", "http://d/r", "http://b", "2026-01-02 03:04:05"))
