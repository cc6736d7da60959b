# SPDX-License-Identifier: Apache-2.0
"""Valid logs of each format with the numbers that stand in them, and the troubles that logs meet."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass

from hypothesis import strategies as st

from sentinel.sources.files import result
from sentinel.sources.formats import make_reader

KEYS = (
    "actor/entropy",
    "actor/grad_norm",
    "actor/lr(1e-4)",
    "critic/score/mean",
    "perf/time_per_step",
    "timing_s/step",
    "val-core/arith@2/acc/mean@1",
)
NUMBERS = st.one_of(
    st.floats(allow_nan=True, allow_infinity=True),
    st.floats(min_value=-1000, max_value=1000),
    st.integers(min_value=-10_000, max_value=10_000),
    st.floats(min_value=1e-12, max_value=1e-3),
)
PRINTABLE = st.one_of(st.floats(min_value=-1000, max_value=1000), st.floats(min_value=1e-9, max_value=1e-3))


@dataclass
class Log:
    """A valid log."""

    format: str
    lines: list[str]
    truth: dict[int, dict[str, float]]

    def data(self) -> bytes:
        return "".join(f"{line}\n" for line in self.lines).encode()


def tables(keys=KEYS, numbers=NUMBERS):
    """Numbers of several steps; every step has every key."""
    row = st.fixed_dictionaries(dict.fromkeys(keys, numbers))
    return st.lists(row, min_size=2, max_size=5).map(lambda rows: dict(enumerate(rows, start=1)))


@st.composite
def verl_logs(draw, prefixed=None, numpy=None):
    table = draw(tables())
    prefix = "(TaskRunner pid=7) " if (draw(st.booleans()) if prefixed is None else prefixed) else ""
    wrap = draw(st.booleans()) if numpy is None else numpy
    spell = (lambda v: f"np.float64({v})" if isinstance(v, float) else f"np.int64({v})") if wrap else str
    lines, truth = [], {}
    for step, metrics in table.items():
        metrics = {**metrics, "training/global_step": step}
        lines.append(f"{prefix}step:{step} - " + " - ".join(f"{k}:{spell(v)}" for k, v in metrics.items()))
        truth[step] = metrics
    return Log("verl_console", lines, truth)


@st.composite
def verl_jsonl(draw):
    table = draw(tables(numbers=st.floats(allow_nan=False, allow_infinity=False)))
    return Log("verl_file_logger", [json.dumps({"step": s, "data": m}) for s, m in table.items()], table)


@st.composite
def hf_logs(draw):
    keys = ("loss", "grad_norm", "learning_rate", "rewards/acc/mean", "epoch")
    table = draw(tables(keys))
    lines = [str({**m, "global_step/max_steps": f"{s}/90", "elapsed_time": "1m 2s"}) for s, m in table.items()]
    return Log("hf_trainer", lines, table)


@st.composite
def megatron_logs(draw):
    keys = ("consumed samples", "learning rate", "lm loss", "grad norm", "number of nan iterations")
    table = draw(tables(keys, numbers=PRINTABLE))
    lines = [
        f" iteration {s:8d}/     900 | " + " ".join(f"{k}: {v!r} |" for k, v in m.items()) for s, m in table.items()
    ]
    return Log("megatron", lines, table)


@st.composite
def nanotron_logs(draw):
    table = draw(tables(("lm_loss", "lr", "grad_norm", "tokens_per_sec"), numbers=PRINTABLE))
    lines = [
        f"[INFO|DP=0]: iteration: {s} / 90 | " + " | ".join(f"{k}: {v!r}" for k, v in m.items())
        for s, m in table.items()
    ]
    return Log("nanotron", lines, table)


@st.composite
def torchtitan_logs(draw):
    table = draw(tables(("loss", "grad_norm", "memory", "tps"), numbers=PRINTABLE))
    lines = [
        f"[rank0]:[titan] 2031-02-11 12:00:01,123 - root - INFO - step: {s:2d}  "
        + "  ".join(f"{k}: {v!r}" for k, v in m.items())
        for s, m in table.items()
    ]
    return Log("torchtitan", lines, table)


@st.composite
def slime_logs(draw):
    table = draw(tables(("train/loss", "train/grad_norm", "train/kl"), numbers=NUMBERS))
    return Log("slime", [f"(Actor pid=3) step {s}: {m}" for s, m in table.items()], table)


ANY_LOG = st.one_of(
    verl_logs(), verl_jsonl(), hf_logs(), megatron_logs(), nanotron_logs(), torchtitan_logs(), slime_logs()
)
CONSOLES = st.one_of(verl_logs(), hf_logs(), megatron_logs(), nanotron_logs(), torchtitan_logs(), slime_logs())


def read(format_name: str, data: bytes):
    """The data as one file of the format."""
    reader = make_reader(format_name)
    return result(reader, reader.feed(data) + reader.finish())


def wrong_numbers(log: Log, got) -> list:
    """Values that the log does not hold for that step and key; keys that the log does not have are not looked at."""
    known = {key for metrics in log.truth.values() for key in metrics}
    return [
        (reading.attempt, reading.step, key, value)
        for reading in got.steps
        for key, value in reading.metrics.items()
        if key in known and not same(log.truth.get(reading.step, {}).get(key), value)
    ]


def lost(log: Log, got) -> list:
    """(step, key) that the log holds and that was not read."""
    read_keys = {(reading.step, key) for reading in got.steps for key in reading.metrics}
    return [(s, k) for s, metrics in log.truth.items() for k in metrics if (s, k) not in read_keys]


def same(a, b) -> bool:
    return a is not None and (a == b or (math.isnan(a) and math.isnan(b)))
