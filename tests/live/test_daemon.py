"""The daemon as a detached actor of a real Ray cluster, and the verbs that reach it."""

import contextlib
import json
import math
import os
import pty
import select
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from sentinel.demo.cluster import clean_environment, private_cluster
from tests.support.terminal import read_to_the_end
from tests.support.watching import metrics, write_baseline

pytestmark = [pytest.mark.live, pytest.mark.timeout(240)]

DRIVER = Path(__file__).parents[1] / "support" / "ray_driver.py"
ROOT = Path(__file__).parents[2]
BAD = {"actor__grad_norm": math.nan}


class Driver:
    """A process that has joined the cluster."""

    def __init__(self, environment, runtime=None):
        environment = {**environment, "RAY_RUNTIME": json.dumps(runtime or {}), "PYTHONPATH": str(ROOT)}
        self.process = subprocess.Popen(
            [sys.executable, str(DRIVER)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )
        assert self.read() == "ready"

    def read(self):
        answer = json.loads(self.process.stdout.readline())
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return answer["answer"]

    def ask(self, *what):
        self.process.stdin.write(json.dumps(what) + "\n")
        self.process.stdin.flush()
        return self.read()

    def report(self, run, *records, session="s"):
        return self.ask("report", {"v": 1, "run": run, "session": session, "records": list(records)})

    def introduce(self, run, place, **other):
        start = {"t": "start", "at": time.time(), "facts": {"trainer": "v1"}, "config": place.config}
        return self.report(run, start, **other)

    def step(self, run, step, session="s", **changed):
        # Its clock is decades off: that is no silence.
        record = {"t": "step", "step": step, "at": 1000.0 + step, "values": metrics(step, **changed)}
        return self.report(run, record, session=session)

    def close(self):
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait(30)


class Place:
    """A cluster, a home, a baseline, and the command line in them."""

    def __init__(self, cluster, folder):
        self.cluster, self.folder = cluster, folder
        self.environment = {**cluster.environment(), "HOME": str(folder)}
        self.file = folder / "sentinel.yaml"
        baseline = write_baseline(folder / "golden.jsonl")
        self.file.write_text(f"home: {folder / 'home'}\nbaseline: {baseline}\nhttp: {{port: 0}}\n")
        self.config = {"path": str(self.file), "text": self.file.read_text()}

    def sentinel(self, *words, environment=None, timeout=120):
        done = subprocess.run(
            [sys.executable, "-m", "sentinel", *words],
            env=environment or self.environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout,
            cwd=ROOT,
        )
        assert "Traceback" not in done.stderr, done.stderr
        return done

    def json(self, *words, code=0):
        done = self.sentinel(*words, "--json")
        assert done.returncode == code, done.stderr
        return json.loads(done.stdout)

    def driver(self, runtime=None):
        return Driver(self.environment, runtime)

    def kill_daemon(self, driver):
        """kill -9, then wait until it is back; return the seconds that took and its new status."""
        self.refused = 0
        pid = driver.ask("query", "status")["pid"]
        os.kill(pid, signal.SIGKILL)
        begin = time.monotonic()
        while time.monotonic() - begin < 60:
            try:
                status = driver.ask("query", "status")
            except RuntimeError:
                self.refused += 1
            else:
                if status["pid"] != pid:
                    return time.monotonic() - begin, status
            time.sleep(0.05)
        raise AssertionError("the daemon did not come back")


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("daemon")
    with private_cluster(accelerators=0) as cluster:
        yield Place(cluster, folder)


@pytest.fixture
def driver(place):
    made = place.driver()
    made.ask("connect", place.config["text"])
    yield made
    made.close()


def test_up_starts_one_daemon_and_everything_answers(place):
    """`up` twice is one daemon; the pages of the contract answer on loopback."""
    place.sentinel("down")
    first = place.json("up", "--config", str(place.file))
    second = place.json("up")
    endpoint = first["endpoint"]

    assert first["daemon"] == "running"
    assert second["pid"] == first["pid"]
    assert endpoint.startswith("http://127.0.0.1:")
    port = int(endpoint.rpartition(":")[2])
    assert port < 10002 or port > 19999
    for path, part in {
        "/metrics": "sentinel_build_info",
        "/-/healthy": "healthy",
        "/-/ready": "ready",
        "/api/v1/runs": '"daemon": "running"',
        "/api/v1/incidents": '"incidents": ',
        "/": "<title>",
    }.items():
        with urllib.request.urlopen(endpoint + path, timeout=10) as answer:
            assert part in answer.read().decode()


def test_down_ends_it_and_up_finds_everything_again(place, driver):
    """Incidents are kept across the daemon's end."""
    driver.introduce("kept", place)
    driver.step("kept", 1)
    driver.step("kept", 2, **BAD)

    assert place.json("down")["daemon"] == "absent"
    assert place.json("status", code=1)["daemon"] == "absent"
    assert place.json("down", code=1)["daemon"] == "absent"
    place.json("up", "--config", str(place.file))
    rows = place.json("incidents", "list", "--run", "kept", code=1)["incidents"]
    assert [row["id"] for row in rows] == ["kept:1"]


def test_down_holds_for_runs_that_go_on_and_not_for_later_ones(place):
    """A trainer that goes on does not start it again; a process that begins later does, and so does `up`."""
    before = place.driver()
    before.ask("connect", place.config["text"])
    place.sentinel("down")
    with pytest.raises(RuntimeError, match="sentinel down"):
        before.ask("connect", place.config["text"])
    later = place.driver()
    later.ask("connect", place.config["text"])
    place.sentinel("down")
    place.json("up", "--config", str(place.file))

    assert before.ask("connect", place.config["text"]) == later.ask("connect", place.config["text"])
    before.close()
    later.close()


def test_settings_are_reloaded_by_a_verb_and_by_a_signal(place, driver, tmp_path):
    """The same process goes on; a fault is one line and changes nothing; Ray's restart keeps what was reloaded."""
    place.sentinel("down")
    file = tmp_path / "sentinel.yaml"
    given = f"home: {place.folder / 'home'}\nhttp: {{port: 0}}\n"
    file.write_text(given)
    pid = place.json("up", "--config", str(file))["pid"]
    log = place.folder / "home" / "daemon.log"

    def said(part):
        end = time.monotonic() + 20
        while time.monotonic() < end:
            if any(part in line for line in log.read_text().splitlines()):
                return True
            time.sleep(0.1)
        return False

    file.write_text(given + "alerts: {min_severity: critical}\n")
    assert place.json("reload", "--config", str(file)) == {"applied": ["alerts.min_severity"], "after_restart": []}
    assert place.sentinel("reload", "--config", "/nowhere.yaml").returncode == 2
    file.write_text(given + "regime: free\n")
    os.kill(pid, signal.SIGHUP)
    assert said('"applied": ["alerts.min_severity", "regime"]')
    file.write_text("regime: sideways")
    assert "sideways" in place.sentinel("reload").stderr
    assert driver.ask("query", "status")["pid"] == pid
    _, status = place.kill_daemon(driver)
    assert status["pid"] != pid
    os.kill(status["pid"], signal.SIGHUP)
    assert said("'sideways'")


def test_nothing_of_the_run_that_made_it_leaks_in(place):
    """Started from inside a run with its own variables and folder: the daemon has none of them, and loads no torch."""
    place.sentinel("down")
    secret = {"VERL_FILE_LOGGER_PATH": "/run-1", "SENTINEL_RUN": "run-1", "SENTINEL_CONFIG": "/x", "OWN": "1"}
    run = place.driver({"env_vars": {**secret, "PYTHONPATH": str(ROOT)}})
    run.ask("start", place.config["text"], {"env_vars": {"ONLY_THE_TASK": "1"}})
    environment, folder, modules = run.ask("environment")
    run.close()

    assert {*secret, "ONLY_THE_TASK"} & set(environment) == set()
    assert folder == "/"
    assert {"torch", "verl", "msprobe", "transformers"} & set(modules) == set()


def test_it_outlives_the_run_that_made_it_and_kill_9(place):
    """Back within seconds, at the same address, with every step, incident and order."""
    place.sentinel("down")
    run = place.driver()
    run.ask("start", place.config["text"], {})
    run.introduce("first", place)
    for step in range(1, 8):
        run.step("first", step)
    orders = run.step("first", 8, **BAD)["orders"]
    endpoint = run.ask("query", "status")["endpoint"]
    run.close()

    other = place.driver()
    seconds, status = place.kill_daemon(other)
    print(f"back after {seconds:.1f} s")
    assert seconds < 20
    # What was in flight; the next call waits in Ray for the successor, and is answered as soon as that is there.
    assert place.refused <= 1
    assert status["endpoint"] == endpoint
    assert status["restarts"] >= 1
    reply = other.report("first")
    assert (reply["step"], reply["orders"]) == (8, orders)
    assert other.step("first", 8, **BAD)["step"] == 8
    assert len(other.ask("query", "incidents", {"run": "first"})["incidents"]) == 1
    other.close()


def test_two_runs_at_once_from_two_drivers(place, driver):
    """One daemon, two runs, nothing mixed."""
    other = place.driver()
    for run, who in (("left", driver), ("right", other)):
        who.introduce(run, place, session=run)
    with ThreadPoolExecutor() as pool:
        for step in range(1, 7):
            bad = BAD if step == 5 else {}
            jobs = [
                pool.submit(driver.step, "left", step, session="left", **bad),
                pool.submit(other.step, "right", step, session="right"),
            ]
            assert [job.result()["step"] for job in jobs] == [step, step]
    other.close()

    assert [row["run"] for row in driver.ask("query", "incidents", {"run": "left"})["incidents"]] == ["left"]
    assert driver.ask("query", "incidents", {"run": "right"})["incidents"] == []


def test_drivers_that_start_it_at_once_get_the_same(place):
    """The race to start it has one winner."""
    place.sentinel("down")
    drivers = [place.driver() for _ in range(3)]
    with ThreadPoolExecutor() as pool:
        pids = set(pool.map(lambda one: one.ask("connect", place.config["text"]), drivers))
    for one in drivers:
        one.close()

    assert len(pids) == 1


def test_a_hung_daemon_is_unreachable_within_the_deadline(place, driver):
    """Stopped by a signal: the command line gives up in time, and the daemon goes on afterwards."""
    pid = driver.ask("query", "status")["pid"]
    os.kill(pid, signal.SIGSTOP)
    try:
        begin = time.monotonic()
        status = place.json("status", "--timeout", "6", code=1)
        seconds = time.monotonic() - begin
    finally:
        os.kill(pid, signal.SIGCONT)

    assert status["daemon"] == "unreachable"
    assert seconds < 20
    assert driver.ask("query", "status")["daemon"] == "running"


def test_the_verdict_comes_in_time(place, driver):
    """From report to decision at the caller; the numbers are printed, the bound is loose for a busy machine."""
    driver.introduce("timed", place, session="timed")
    values = metrics(1) | {f"extra/m{number}": 1.0 for number in range(90)}
    message = {"v": 1, "run": "timed", "session": "timed", "records": [{"t": "step", "values": values}]}
    seconds = sorted(driver.ask("timed", message, 200))
    p50, p99 = statistics.median(seconds), seconds[197]
    print(f"report to reply: p50 {p50 * 1000:.1f} ms, p99 {p99 * 1000:.1f} ms")

    assert p50 < 0.1


def test_incidents_and_captures_by_the_command_line(place, driver):
    """list, show, report, request, cancel, in the forms of the contract."""
    driver.introduce("cli", place, session="cli")
    driver.step("cli", 1, session="cli")
    driver.step("cli", 2, session="cli", **BAD)
    shown = place.json("incidents", "show", "cli:1", code=1)
    page = place.folder / "page.html"

    assert (shown["kind"], shown["findings"][0]["value"]) == ("non_finite", "nan")
    assert place.sentinel("incidents", "report", "cli:1", "-o", str(page)).returncode == 0
    assert "cli:1" in page.read_text()
    assert "non_finite" in place.sentinel("incidents", "show", "cli:1").stdout
    made = place.json("captures", "request", "--run", "cli", "--stages", "actor_update", "--steps", "2")
    assert (made["state"], made["incident"], made["order"]["first_step"]) == ("ordered", None, 3)
    assert made["id"] in {order["id"] for order in driver.report("cli", session="cli")["orders"]}
    assert place.json("captures", "cancel", made["id"])["state"] == "cancelled"
    listed = place.json("captures", "list", "--run", "cli")["captures"]
    assert {"cli:1/c1": "ordered", made["id"]: "cancelled"} == {row["id"]: row["state"] for row in listed}


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (("incidents", "show", "no:1"), "no incident 'no:1'"),
        (("captures", "cancel", "no:m1"), "no capture 'no:m1'"),
        (("captures", "request", "--run", "nobody", "--stages", "actor_update"), "no run 'nobody'"),
        (("status", "--run", "nobody"), "no run 'nobody'"),
        (("incidents", "list", "--address", "nonsense"), "expected HOST:PORT"),
    ],
)
def test_a_question_at_fault_is_one_line_and_exit_2(place, driver, words, part):
    """What, where, what to do."""
    done = place.sentinel(*words)

    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert part in done.stderr


def test_a_dead_address_is_unreachable_at_once(place):
    """Nobody listens there: no wait for Ray's own patience."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    begin = time.monotonic()
    status = place.json("status", "--address", address, code=1)

    assert status["daemon"] == "unreachable"
    assert time.monotonic() - begin < 15


def test_an_address_that_answers_nothing_is_unreachable_within_the_deadline(place):
    """Somebody listens and is no Ray: `ray.init` would hang there."""
    with socket.create_server(("127.0.0.1", 0)) as mute:
        address = f"127.0.0.1:{mute.getsockname()[1]}"
        begin = time.monotonic()
        status = place.json("status", "--address", address, "--timeout", "5", code=1)

    assert status["daemon"] == "unreachable"
    assert time.monotonic() - begin < 20


def test_attach_tells_the_daemon_of_the_cluster(place, driver):
    """A log is followed from outside; the daemon judges it, and goes on knowing what it found."""
    log = place.folder / "run.jsonl"
    with log.open("w") as file:
        for step in range(1, 13):
            data = metrics(step) | ({"actor/grad_norm": None} if step == 8 else {})
            file.write(json.dumps({"step": step, "data": data}) + "\n")
    words = ("attach", str(log), "--run", "by-log", "--baseline", str(place.folder / "golden.jsonl"))
    (incident,) = place.json(*words, code=1)["incidents"]

    assert (incident["opened_at_step"], incident["capture"]) == (8, None)
    assert incident["receipt"]["outcome"] == "refused"
    assert driver.ask("query", "incidents", {"run": "by-log"})["incidents"][0]["id"] == "by-log:1"
    (row,) = driver.ask("query", "status", {"run": "by-log"})["runs"]
    assert (row["state"], row["last_step"]) == ("finished", 12)


def test_top_is_a_live_view_that_needs_a_terminal(place, driver):
    """In a pseudo-terminal it shows the run and ends with Ctrl-C; without one it says what to use."""
    driver.introduce("on-top", place, session="on-top")
    driver.step("on-top", 1, session="on-top")
    assert place.sentinel("top").returncode == 2

    master, slave = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "sentinel", "top"],
        env={**place.environment, "TERM": "xterm", "COLUMNS": "200", "LINES": "60"},
        stdin=slave,
        stdout=slave,
        stderr=slave,
        cwd=ROOT,
        # A test run in the background of a shell ignores Ctrl-C, and so would its children.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509  # one call, before exec
    )
    os.close(slave)
    seen = b""
    end = time.monotonic() + 60
    while b"actor/grad_norm" not in seen and time.monotonic() < end:
        if select.select([master], [], [], 0.5)[0]:
            seen += os.read(master, 65536)
    process.send_signal(signal.SIGINT)
    code = read_to_the_end(process, master, 30)
    os.close(master)

    assert (b"on-top" in seen, code) == (True, 0)


def test_an_idle_daemon_is_small(place, driver):
    """Memory and time of one that only waits; printed, the bounds are loose."""
    process = psutil.Process(driver.ask("query", "status")["pid"])
    process.cpu_percent()
    time.sleep(5)
    cpu = process.cpu_percent()
    memory = process.memory_info().rss / 1e6
    print(f"idle daemon: {memory:.0f} MB, {cpu:.1f} % of a core")

    assert memory < 250
    assert cpu < 10


def test_without_a_cluster_the_daemon_is_absent(tmp_path):
    """No cluster here, none named."""
    environment = clean_environment() | {"HOME": str(tmp_path), "RAY_TMPDIR": str(tmp_path)}
    code = (
        "import sys; from sentinel.cli import cluster, main; cluster.gcs_addresses = dict; sys.exit(main(sys.argv[1:]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "status", "--json"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )

    assert done.returncode == 1
    assert json.loads(done.stdout)["daemon"] == "absent"


def test_up_starts_a_cluster_where_there_is_none(tmp_path):
    """It outlives the command, is found by the next one, and is not started twice."""
    folder = Path(tempfile.mkdtemp(prefix="sup-", dir="/tmp"))  # short: Ray puts sockets below it
    environment = clean_environment() | {"HOME": str(tmp_path), "RAY_TMPDIR": str(folder)}
    # Other clusters of this machine are not looked at.
    code = (
        "import sys; from sentinel.cli import cluster, main; cluster.gcs_addresses = dict; sys.exit(main(sys.argv[1:]))"
    )

    def sentinel(*words):
        return subprocess.run(
            [sys.executable, "-c", code, *words, "--json"],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            cwd=ROOT,
            timeout=150,
        )

    try:
        first, second = sentinel("up", "--timeout", "90"), sentinel("up")
        assert first.returncode == 0, first.stderr
        assert "starting one on this machine" in first.stderr
        assert json.loads(first.stdout)["home"] == str(tmp_path / ".sentinel")
        assert "starting one" not in second.stderr
        assert json.loads(second.stdout)["pid"] == json.loads(first.stdout)["pid"]
        assert json.loads(sentinel("down").stdout)["daemon"] == "absent"
    finally:
        ours = [p for p in psutil.process_iter(["cmdline"]) if str(folder) in " ".join(p.info["cmdline"] or ())]
        for process in ours:
            with contextlib.suppress(psutil.Error):
                process.kill()
        psutil.wait_procs(ours, timeout=30)
        shutil.rmtree(folder, ignore_errors=True)
