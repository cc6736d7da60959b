# SPDX-License-Identifier: Apache-2.0
"""Run files of W&B and SwanLab: what the real library wrote, long records over blocks, damage, growth."""

from __future__ import annotations

import json
import math
import struct
import subprocess
import sys
import zlib

import pytest

from sentinel.sources import Follower, read_file
from sentinel.sources.files import result
from sentinel.sources.journal import BLOCK
from sentinel.sources.run_files import SwanlabRun, WandbRun
from tests.sources.event_files import field, varint


def history(step: int, metrics: dict) -> bytes:
    def item(key, value):
        return field(
            1, field(2, key.encode()) + varint(16 << 3 | 2) + varint(len(text := json.dumps(value).encode())) + text
        )

    body = b"".join(item(key, value) for key, value in metrics.items())
    return field(2, body + field(2, b"\x08" + varint(step)))


def run_file(*records: bytes, magic: bytes = WandbRun.magic) -> bytes:
    """The records in their frames, as W&B's writer lays them out."""
    out = bytearray(magic + b"\x00")
    for data in records:
        kinds = iter([2, *[3] * (len(data) // 100)])
        first = True
        while True:
            left = BLOCK - len(out) % BLOCK
            if left < 7:
                out += b"\0" * left
                continue
            part, data = data[: left - 7], data[left - 7 :]
            kind = (1 if first else 4) if not data else next(kinds)
            first = False
            out += struct.pack("<IHB", zlib.crc32(part, zlib.crc32(bytes([kind]))), len(part), kind) + part
            if not data:
                break
    return bytes(out)


def read(data: bytes, size: int = 1 << 20, kind=WandbRun):
    reader = kind()
    readings = [r for at in range(0, len(data), size) for r in reader.feed(data[at : at + size])]
    return result(reader, readings + reader.finish())


def steps(got):
    return [(r.attempt, r.step, dict(r.metrics)) for r in got.steps]


STEPS = [(n, {"actor/loss": n / 4, "_runtime": 1.0, "note": "text", "ok": True}) for n in range(1, 40)]
WANT = [(1, n, {"actor/loss": n / 4, "ok": 1.0}) for n in range(1, 40)]


@pytest.mark.parametrize("size", [1, 7, 1000, 1 << 20])
def test_steps_come_back_in_any_portions(size):
    got = read(run_file(*(history(*step) for step in STEPS)), size)

    assert steps(got) == WANT
    assert got.warnings == ()


def test_records_over_several_blocks_are_put_together():
    media = field(4, b"x" * 100_000)
    got = read(
        run_file(history(*STEPS[0]), media, history(2, {f"k{n}": float(n) for n in range(5000)}), history(*STEPS[2])),
        4096,
    )

    assert [step for _, step, _ in steps(got)] == [1, 2, 3]
    assert len(got.steps[1].metrics) == 5000


def test_values_that_are_not_finite_are_values():
    got = read(run_file(history(1, {"a/b": math.nan, "c/d": math.inf, "e/f": "-Infinity"})))

    assert str(steps(got)) == str([(1, 1, {"a/b": math.nan, "c/d": math.inf, "e/f": -math.inf})])


@pytest.mark.parametrize("at", range(7, 200, 3))
def test_a_flipped_byte_is_said_and_makes_no_wrong_number(at):
    data = bytearray(run_file(*(history(*step) for step in STEPS)))
    data[at] ^= 0x11
    got = read(bytes(data))

    assert {(attempt, step): m for attempt, step, m in steps(got)}.items() <= {(a, s): m for a, s, m in WANT}.items()
    assert {"corrupt_record", "truncated_record"} & set(got.warnings)


def test_a_torn_end_is_said():
    assert read(run_file(history(*STEPS[0]), history(*STEPS[1]))[:-3]).warnings == ("truncated_record",)


def test_a_growing_run_is_followed(tmp_path):
    data = run_file(*(history(*step) for step in STEPS))
    path = tmp_path / "run-x.wandb"
    path.write_bytes(data[:300])
    follower = Follower(tmp_path)
    got = list(follower.poll(1.0).readings)
    follower = Follower(tmp_path, state=json.loads(json.dumps(follower.to_plain())))
    with path.open("ab") as stream:
        stream.write(data[300:])
    got += follower.poll(2.0).readings

    assert [(r.attempt, r.step, dict(r.metrics)) for r in got] == WANT


@pytest.mark.live
@pytest.mark.timeout(120)
def test_what_the_real_library_writes_is_read(tmp_path, monkeypatch):
    wandb = pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    options = wandb.Settings(x_disable_stats=True, x_disable_meta=True, console="off")
    run = wandb.init(project="x", dir=str(tmp_path), settings=options)
    for step in range(1, 200):
        run.log(
            {"actor/loss": step / 4, "critic/score/mean": math.nan, "nested": {"n": step}, "note": "x" * 300}, step=step
        )
    run.finish()
    (folder,) = (tmp_path / "wandb").glob("offline-run-*")

    got = read_file(folder)

    assert got.format == "wandb_run"
    assert [r.step for r in got.steps] == list(range(1, 200))
    assert all(r.metrics["actor/loss"] == r.step / 4 and math.isnan(r.metrics["critic/score/mean"]) for r in got.steps)
    assert got.steps[7].metrics["nested.n"] == 8.0
    assert got.warnings == ()


def swanlab_scalar(step: int, key: str, value: float) -> bytes:
    told = b"\x10" + varint(step) if step else b""
    number = b"\x09" + struct.pack("<d", value) if value else b""
    return field(13, field(1, key.encode()) + told + field(5, number))


def test_scalars_of_swanlab_are_put_together_by_step():
    samples = [(s, k, v) for s in range(3) for k, v in (("a/b", s / 4), ("c/d", math.inf))]
    got = read(run_file(*(swanlab_scalar(*sample) for sample in samples), magic=SwanlabRun.magic), kind=SwanlabRun)

    assert steps(got) == [(1, s, {"a/b": s / 4, "c/d": math.inf}) for s in range(3)]


@pytest.mark.live
@pytest.mark.timeout(120)
def test_what_the_real_swanlab_writes_is_read(tmp_path):
    pytest.importorskip("swanlab")
    code = (
        "import sys, swanlab\n"
        "swanlab.init(project='x', mode='offline', logdir=sys.argv[1])\n"
        "for step in range(1, 6):\n"
        "    swanlab.log({'actor/loss': step / 4, 'critic/score/mean': float('inf')}, step=step)\n"
        "swanlab.finish()\n"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True, capture_output=True, timeout=100)
    (folder,) = tmp_path.glob("run-*")

    got = read_file(folder)

    assert got.format == "swanlab_run"
    assert [(r.step, r.metrics["actor/loss"]) for r in got.steps] == [(step, step / 4) for step in range(1, 6)]
