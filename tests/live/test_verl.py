# SPDX-License-Identifier: Apache-2.0
"""Real verl runs, watched: training stays what it was, and what goes wrong at N is on disk at N+1."""

import json
import signal
import time
from contextlib import suppress
from datetime import datetime

import psutil
import pytest

pytest.importorskip("verl", reason="a real verl run needs verl")
pytest.importorskip("msprobe", reason="captures are msprobe's")

from sentinel.demo.cluster import private_cluster
from sentinel.demo.kit.faults import Fault
from sentinel.demo.runs import RunSettings, launch
from tests.support.monitoring import Alertmanager, Hook, Prometheus, free_port

pytestmark = [pytest.mark.live, pytest.mark.timeout(600)]

# Keys that are about time, place and memory: they differ between any two runs.
NOT_TRAINING = ("timing", "perf/", "actor/perf", "critic/perf")
STAGES = ["actor_compute_log_prob", "ref_compute_log_prob", "actor_update"]


def settings_file(folder, **more):
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "sentinel.yaml"
    path.write_text(json.dumps({"home": str(folder / "home"), "http": {"port": 0}, **more}))
    return path


def training(run):
    """Step -> what training computed, exactly as verl logged it."""
    return {
        step: {key: value for key, value in metrics.items() if not key.startswith(NOT_TRAINING)}
        for step, metrics in run.metrics().items()
    }


def dumped(root):
    """Every (step, stage, rank) on disk."""
    return sorted(
        (int(path.parts[-5].removeprefix("step_")), path.parts[-4], path.parts[-2])
        for path in root.rglob("step_*/*/step0/rank*/dump.json")
    )


def daemon_process(cluster):
    """The process of this cluster's daemon."""
    for process in psutil.Process(cluster.holder.pid).children(recursive=True):
        with suppress(psutil.Error):
            if any("ray::WatchdogActor" in part for part in process.cmdline()):
                return process
    return None


def test_training_stays_bit_for_bit_the_same_through_captures_a_killed_and_a_hung_daemon(tmp_path, assets):
    """V0 replay is bit-reproducible, so one bit of difference would be Sentinel's."""
    rollouts = tmp_path / "rollouts"
    orders = tmp_path / "orders.json"
    orders.write_text(
        json.dumps(
            [
                {"first_step": 3, "last_step": 3, "stages": STAGES, "level": "L0", "why": "test"},
                {"first_step": 5, "last_step": 5, "stages": ["actor_update"], "level": "mix", "why": "test"},
            ]
        )
    )
    watched_environment = {
        "SENTINEL_RUN": "watched",
        "SENTINEL_CONFIG": str(settings_file(tmp_path / "sentinel")),
        "SENTINEL_ORDERS": str(orders),
    }
    done = {"killed": 0, "stopped": 0}

    def disturb(phase, step):
        process = daemon_process(cluster)
        if process is None or phase != "training":
            return
        with suppress(psutil.Error):
            if step >= 6 and not done["killed"]:
                process.kill()
                done["killed"] = step
            elif step >= 10 and not done["stopped"]:
                process.send_signal(signal.SIGSTOP)
                done["stopped"] = step

    with private_cluster() as cluster:
        plain = launch(RunSettings(name="plain", steps=14, rollouts=rollouts), tmp_path / "plain", assets, cluster)
        watched = launch(
            RunSettings(name="watched", steps=14, rollouts=rollouts, environment=watched_environment),
            tmp_path / "watched",
            assets,
            cluster,
            progress=disturb,
        )

    assert done["killed"], "the daemon was never there to be killed"
    assert training(watched) == training(plain)
    assert dumped(tmp_path / "orders.json.dumps") == [
        *((3, stage, "rank0") for stage in sorted(STAGES)),
        (5, "actor_update", "rank0"),
    ]


@pytest.fixture
def monitored(tmp_path, need):
    """Prometheus and Alertmanager with the shipped rules, waiting for a daemon; a receiver of theirs, one of Sentinel's own."""
    need("prometheus", "prometheus-alertmanager")
    folder = tmp_path / "monitoring"
    folder.mkdir()
    port = free_port()
    while 10002 <= port <= 19999:
        port = free_port()
    begun = [theirs := Hook(), own := Hook()]
    try:
        begun.append(Alertmanager(folder, theirs))
        address = begun[-1].url.removeprefix("http://")
        begun.append(Prometheus(folder, f"127.0.0.1:{port}", address))
        yield {"http": {"port": port}, "alerts": {"webhook": own.url}}, theirs, own
    finally:
        for thing in reversed(begun):
            thing.close()


@pytest.mark.parametrize(("trainer", "ranks"), [("v1", 2)])
def test_a_nan_at_step_three_is_dumped_at_step_four_on_every_rank_and_people_are_told(
    tmp_path, assets, monitored, trainer, ranks
):
    settings, theirs, own = monitored
    config = settings_file(tmp_path / "sentinel", **settings)
    module = "model.layers.1.mlp.down_proj"
    fault = Fault(stage="actor_update", module=module, kind="nan_grad", size=3, step=3)
    environment = {"SENTINEL_RUN": "nan", "SENTINEL_CONFIG": str(config)}

    with private_cluster(accelerators=ranks) as cluster:
        launch(
            RunSettings(name="nan", steps=7, trainer=trainer, ranks=ranks, fault=fault, environment=environment),
            tmp_path / "run",
            assets,
            cluster,
        )
        at, alert = theirs.wait("firing", "SentinelNonFinite", 30, run="nan")

    said = [json.loads(line) for line in (tmp_path / "sentinel" / "home" / "daemon.log").read_text().splitlines()]
    (opened,) = [line["at"] for line in said if (line["event"], line.get("change")) == ("incident", "opened")]
    begun = datetime.fromisoformat(opened).timestamp() - time.time() + time.monotonic()
    first = next(when for when, _, body in own.got if body["change"] == "opened")
    print(f"verdict to Sentinel's webhook {first - begun:.3f} s, to Alertmanager's {at - begun:.1f} s")
    # verl has the cores; tests/live/test_prometheus.py holds both to their numbers.
    assert at - begun < 15.0
    assert first - begun < 5.0
    assert alert["labels"]["stage"] == "actor_update"
    assert [body["incident"]["id"] for _, _, body in own.got if body["change"] == "opened"] == ["nan:1"]
    (incident,) = [
        json.loads(path.read_text()) for path in (tmp_path / "sentinel" / "home").glob("incidents/*/incident.json")
    ]
    assert (incident["kind"], incident["opened_at_step"], incident["stage"]) == ("non_finite", 3, "actor_update")
    assert incident["receipt"]["first_step"] == 4
    assert incident["receipt"]["ranks"] == list(range(ranks))
    steps = {step for step, _, _ in dumped(tmp_path / "sentinel" / "home" / "dumps")}
    assert min(steps) == 4
    assert incident["triage"]["verdict"] == "non_finite"
    assert incident["triage"]["first"]["module"] == module
