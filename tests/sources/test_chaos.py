# SPDX-License-Identifier: Apache-2.0
"""10,000 lines under a writer that tears, rotates, copies away and truncates, and a follower that is killed: none lost, none twice."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sentinel.sources import Follower

LINES = 10_000


def text_of(step: int) -> str:
    return f"(TaskRunner pid=7) step:{step} - actor/loss:{step * 0.5} - training/global_step:{step}\n"


class Writer:
    """Writes the next lines in torn portions, and does to the file what log keepers do."""

    def __init__(self, path: Path, rng: random.Random) -> None:
        self.path, self.rng, self.written, self._rest = path, rng, 0, b""

    def write(self) -> None:
        count = min(self.rng.randint(1, 60), LINES - self.written)
        data = self._rest + "".join(text_of(self.written + n + 1) for n in range(count)).encode()
        self.written += count
        cut = len(data) if self.written == LINES else self.rng.randint(0, len(data))
        with self.path.open("ab") as stream:
            stream.write(data[:cut])
        self._rest = data[cut:]

    def finish_line(self) -> None:
        with self.path.open("ab") as stream:
            stream.write(self._rest)
        self._rest = b""

    def shift(self) -> None:
        for number in range(40, 0, -1):
            if (old := self.path.with_name(f"{self.path.name}.{number}")).exists():
                old.rename(self.path.with_name(f"{self.path.name}.{number + 1}"))

    def rotate(self) -> None:
        self.finish_line()
        self.shift()
        self.path.rename(self.path.with_name(f"{self.path.name}.1"))
        self.path.touch()

    def copy_and_truncate(self) -> None:
        self.shift()
        shutil.copyfile(self.path, self.path.with_name(f"{self.path.name}.1"))
        os.truncate(self.path, 0)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", range(3))
def test_ten_thousand_lines_arrive_once_each_over_rotations_and_restarts(tmp_path, seed):
    rng = random.Random(seed)
    writer = Writer(tmp_path / "run.log", rng)
    follower = Follower(writer.path)
    got: list = []
    warned: set = set()
    kept = json.dumps(follower.to_plain())

    def look() -> None:
        nonlocal kept
        more = True
        while more:
            result = follower.poll(1.0)
            got.extend(result.readings)
            warned.update(warning.code for warning in result.warnings)
            more = result.more
        kept = json.dumps(follower.to_plain())

    writer.write()
    look()
    while writer.written < LINES:
        writer.write()
        match rng.randint(0, 9):
            case 0:
                writer.rotate()
            case 1:
                look()
                writer.copy_and_truncate()
            case 2:  # killed: what it has not kept is read again by the next one
                follower.close()
                follower = Follower(writer.path, state=json.loads(kept))
            case 3 | 4 | 5 | 6:
                look()
    writer.finish_line()
    look()
    look()
    follower.close()

    assert [reading.step for reading in got] == list(range(1, LINES + 1))
    assert all(reading.metrics["actor/loss"] == reading.step * 0.5 for reading in got)
    assert {reading.attempt for reading in got} == {1}
    assert warned <= {"truncated_line"}


@pytest.mark.timeout(120)
def test_a_writer_in_another_process_is_followed_while_it_writes(tmp_path):
    path = tmp_path / "run.log"
    process = subprocess.Popen(
        [sys.executable, __file__, str(path)], env={"PYTHONPATH": str(Path(__file__).parents[2])}
    )
    follower, got = Follower(path), []
    rng = random.Random(1)
    idle = 0
    while idle < 3:
        running = process.poll() is None
        result = follower.poll(1.0)
        got += result.readings
        if got:
            path.with_name("go").touch()
        idle = 0 if running or result.readings else idle + 1
        if rng.random() < 0.02:
            state = json.loads(json.dumps(follower.to_plain()))
            follower.close()
            follower = Follower(path, state=state)
    follower.close()

    assert process.returncode == 0
    assert [reading.step for reading in got] == list(range(1, LINES + 1))


if __name__ == "__main__":
    other = Writer(Path(sys.argv[1]), random.Random(5))
    while other.written < LINES:
        other.write()
        while not other.path.with_name("go").exists():
            time.sleep(0.001)
        if other.rng.random() < 0.05:
            other.rotate()
        time.sleep(0.001)
    other.finish_line()
