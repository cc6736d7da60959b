# SPDX-License-Identifier: Apache-2.0
"""New settings under a running daemon: what is safe is in force at once, the rest is named, and a fault changes nothing."""

import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request

import pytest

from sentinel.daemon.house import House
from sentinel.daemon.reloading import AFTER_RESTART, changed_keys
from sentinel.errors import SettingsError
from sentinel.settings import parse
from tests.support.receiver import Receiver
from tests.support.watching import World


@pytest.fixture
def start(tmp_path):
    """Start daemons in one home, one after the other."""
    begun = []

    def begin(text):
        path = tmp_path / "sentinel.yaml"
        path.write_text(text)
        for house in begun:
            house.close()
        begun.append(House(text, str(path)))
        return begun[-1]

    yield begin
    begun[-1].close()


def text(**changed):
    return json.dumps({"home": "home", "http": {"port": 0}, **changed})


def answer(house, token=None):
    request = urllib.request.Request(house.endpoint + "/-/healthy")
    if token:
        request.add_header("Authorization", f"Bearer {token}")
    try:
        with urllib.request.urlopen(request, timeout=10) as found:
            return found.status
    except urllib.error.HTTPError as error:
        error.close()
        return error.code


def test_alerts_go_to_the_new_address_at_once(start, tmp_path):
    house = start(text())
    (tmp_path / "world").mkdir()
    world = World(tmp_path / "world")
    world.watchdog = house.watchdog
    trainer = world.trainer()
    trainer.steps(1, 7)
    receiver = Receiver(200)

    done = house.reload(text(alerts={"webhook": receiver.url}))
    trainer.step(8, actor__grad_norm=float("nan"))
    world.settle()
    receiver.close()

    assert done == {"applied": ["alerts.webhook"], "after_restart": []}
    assert next(body["change"] for _, body in receiver.got) == "opened"


def test_a_renewed_token_counts_and_the_address_stays(start, tmp_path):
    token = tmp_path / "token"
    token.write_text("a" * 20)
    given = text(http={"port": 0, "token_file": str(token)})
    house = start(given)
    endpoint = house.endpoint
    token.write_text("b" * 20)
    assert answer(house, "a" * 20) == 200

    house.reload(given)

    assert (answer(house, "a" * 20), answer(house, "b" * 20), house.endpoint) == (401, 200, endpoint)


def test_home_and_address_wait_for_a_restart_and_count_after_it(start, tmp_path):
    given = text()
    house = start(given)
    port = house.server.port
    wanted = json.dumps({"home": "elsewhere", "http": {"host": "localhost", "port": 0}, "regime": "free"})

    assert house.reload(wanted) == {"applied": ["regime"], "after_restart": ["home", "http.host"]}
    assert (house.server.port, house.watchdog.settings.home) == (port, str(tmp_path / "home"))
    assert (tmp_path / "home" / "settings.json").stat().st_mode & 0o777 == 0o600
    successor = start(given)  # Ray starts it again with what the first one was given
    assert successor.watchdog.settings.regime == "free"
    assert successor.watchdog.settings.http.host == "localhost"


def test_a_daemon_that_is_started_with_another_text_forgets_what_was_reloaded(start):
    start(text()).reload(text(regime="free"))

    assert start(text(regime="replayed")).watchdog.settings.regime == "replayed"


@pytest.mark.parametrize(
    "bad", ["regime: sideways", "alerts: {webhok: x}", "http: {port: 0, token_file: /nowhere}", "a: ["]
)
def test_settings_at_fault_change_nothing_and_are_said_until_better_ones_come(start, bad):
    house = start(text(regime="free"))
    before = house.watchdog.settings

    with pytest.raises(SettingsError):
        house.reload(bad)
    found = house.answers.answer("reload", {"text": bad, "path": "sentinel.yaml"})

    assert "\n" not in found["error"]
    assert house.watchdog.settings == before
    assert any(remark.startswith("reload: ") for remark in house.answers.answer("status", {})["remarks"])
    house.reload(text(regime="free"))
    assert house.answers.answer("status", {})["remarks"] == []


def test_without_a_text_the_daemons_own_file_is_read_again(start, tmp_path):
    house = start(text())
    (tmp_path / "sentinel.yaml").write_text(text(regime="free"))
    house.hang_up()
    assert house.watchdog.settings.regime == "free"

    (tmp_path / "sentinel.yaml").unlink()
    house.hang_up()
    assert house.watchdog.settings.regime == "free"
    assert "No such file" in house.remarks["reload"]


def test_the_keys_that_wait_are_settings():
    keys = changed_keys(parse("{}"), parse("{home: x, http: {host: localhost, port: 1}, run: r}"))

    assert set(AFTER_RESTART) < set(keys)


def test_a_hangup_is_heard_although_the_main_thread_is_outside_of_python():
    """As in a Ray actor: the main thread waits in C and runs no handler of Python's, and we live on another one."""
    code = (
        "import ctypes, threading\n"
        "from sentinel.daemon.hangup import on_hangup\n"
        "thread = threading.Thread(target=on_hangup, args=(lambda: print('heard', flush=True),))\n"
        "thread.start(); thread.join()\n"
        "print('ready', flush=True)\n"
        "while True: ctypes.CDLL(None).pause()\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout.readline() == "ready\n"
        for _ in range(3):
            os.kill(process.pid, signal.SIGHUP)
            assert process.stdout.readline() == "heard\n"
        assert process.poll() is None
    finally:
        process.kill()
        process.wait(10)
        process.stdout.close()
