# SPDX-License-Identifier: Apache-2.0
"""Event files: the same numbers as TensorBoard's own reader, torn and damaged records, several files of one run."""

from __future__ import annotations

import math
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sentinel.errors import UnreadableLog
from sentinel.sources import read_file
from sentinel.sources.files import result
from sentinel.sources.tensorboard import EventReader
from sentinel.sources.wire import MalformedError, fields, scalar_of_tensor
from sentinel.sources.wire import varint as read_varint
from tests.sources.event_files import event, field, record, scalar, varint

pytestmark = pytest.mark.timeout(60)
VERSION = record(b"\x09" + struct.pack("<d", 1.0) + field(3, b"brain.Event:2"))
START = field(7, b"\x08\x01")


def read(*portions: bytes):
    reader = EventReader()
    readings = [reading for portion in portions for reading in reader.feed(portion)]
    return result(reader, readings + reader.finish())


def places(got):
    return [(r.attempt, r.step, dict(r.metrics)) for r in got.steps]


@given(
    st.lists(
        st.tuples(
            st.integers(0, 10**9),
            st.sampled_from(["actor/loss", "a" * 200, "val-core/数学/acc@1"]),
            st.floats(width=32),
        ),
        max_size=40,
    ),
    st.integers(1, 97),
)
@settings(deadline=None, max_examples=60)
def test_scalars_come_back_in_any_portions(samples, size):
    samples = sorted(samples, key=lambda sample: sample[0])
    data = VERSION + b"".join(scalar(*sample) for sample in samples)
    want: dict = {}
    for step, tag, value in samples:
        want.setdefault(step, {})[tag] = value

    got = read(*(data[at : at + size] for at in range(0, len(data), size)))

    assert str({r.step: dict(r.metrics) for r in got.steps}) == str(want)


def test_the_numbers_are_those_of_tensorboards_own_reader(tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    path = tmp_path / "events.out.tfevents.1.host"
    tags = [f"actor/metric_{n}" for n in range(7)]
    path.write_bytes(VERSION + b"".join(scalar(s, t, math.sin(s) * n) for s in range(200) for n, t in enumerate(tags)))
    oracle = EventAccumulator(str(path), size_guidance={"scalars": 0})
    oracle.Reload()

    got = read_file(path)

    for tag in tags:
        assert [(r.step, r.metrics[tag]) for r in got.steps] == [(e.step, e.value) for e in oracle.Scalars(tag)]


def test_a_file_of_torch_is_read(tmp_path):
    torch = pytest.importorskip("torch.utils.tensorboard")
    writer = torch.SummaryWriter(str(tmp_path))
    for step in range(3):
        writer.add_scalar("actor/loss", step / 4, step)
        writer.add_text("note", "text", step)
    writer.close()

    assert places(read_file(tmp_path)) == [(1, step, {"actor/loss": step / 4}) for step in range(3)]


@pytest.mark.parametrize("cut", range(1, 40, 7))
def test_a_torn_record_resumes(cut):
    data = VERSION + scalar(1, "a", 0.5) + scalar(2, "a", 0.75)
    reader = EventReader()
    got = reader.feed(data[:-cut]) + reader.settle()
    got += reader.feed(data[-cut:]) + reader.settle()

    assert [(r.step, dict(r.metrics)) for r in got] == [(1, {"a": 0.5}), (2, {"a": 0.75})]
    assert reader.notes.codes == ()


def test_a_torn_record_at_the_end_of_a_file_is_said():
    got = read(VERSION + scalar(1, "a", 0.5) + scalar(2, "a", 0.75)[:-1])

    assert places(got) == [(1, 1, {"a": 0.5})]
    assert got.warnings == ("truncated_record",)


@pytest.mark.parametrize("damaged", range(60))
def test_a_flipped_byte_costs_one_record_and_is_said(damaged):
    middle = bytearray(scalar(2, "actor/loss", 0.75))
    if damaged >= len(middle):
        pytest.skip("shorter")
    middle[damaged] ^= 0x10
    got = read(VERSION + scalar(1, "actor/loss", 0.5) + bytes(middle) + scalar(3, "actor/loss", 1.0))

    assert places(got) == [(1, 1, {"actor/loss": 0.5}), (1, 3, {"actor/loss": 1.0})]
    assert got.warnings == ("corrupt_record",)


def test_a_value_that_is_not_the_end_of_its_event_is_told_by_its_field():
    metadata = field(9, field(1, field(1, b"scalars")) + field(2, struct.pack("<f", 9.0)))

    def event_of(step):
        inner = field(1, b"a") + b"\x15" + struct.pack("<f", 0.5) + metadata
        return record(event(step, field(5, field(1, inner))))

    assert places(read(VERSION + b"".join(map(event_of, (1, 2, 3))))) == [(1, s, {"a": 0.5}) for s in (1, 2, 3)]


def test_foreign_bytes_between_records_are_passed_over():
    got = read(VERSION + scalar(1, "a", 0.5) + b"\x00" * 1000 + scalar(2, "a", 0.75))

    assert [step for _, step, _ in places(got)] == [1, 2]
    assert got.warnings == ("corrupt_record",)


def test_two_tags_that_end_alike_are_kept_apart():
    got = read(VERSION + b"".join(scalar(s, t, v) for s in (1, 2) for t, v in (("a", 1.0), ("b", 2.0), ("aa", 3.0))))

    assert places(got) == [(1, s, {"a": 1.0, "b": 2.0, "aa": 3.0}) for s in (1, 2)]


def test_a_session_start_and_falling_steps_begin_attempts():
    start = record(event(3, START))
    got = read(VERSION + scalar(1, "a", 1.0) + scalar(2, "a", 1.0) + start + scalar(3, "a", 1.0) + scalar(1, "a", 1.0))

    assert [(attempt, step) for attempt, step, _ in places(got)] == [(1, 1), (1, 2), (2, 3), (3, 1)]


def tensor_value(tag: str, tensor: bytes, plugin: str = "scalars") -> bytes:
    metadata = field(9, field(1, field(1, plugin.encode())))
    return field(5, field(1, field(1, tag.encode()) + metadata + field(8, tensor)))


@pytest.mark.parametrize(
    ("tensor", "value"),
    [
        (b"\x08\x01" + field(4, struct.pack("<f", 0.5)), 0.5),
        (b"\x08\x02" + field(4, struct.pack("<d", 0.1)), 0.1),
        (b"\x08\x03" + field(4, struct.pack("<i", -3)), -3.0),
        (b"\x08\x09" + b"\x50" + varint((1 << 64) - 3), -3.0),
        (b"\x08\x01" + field(5, struct.pack("<f", 2.5)), 2.5),
        (b"\x08\x01" + b"\x2d" + struct.pack("<f", 2.5), 2.5),
        (b"\x08\x01" + field(2, field(2, b"\x08\x01")) + field(4, struct.pack("<f", 0.5)), 0.5),
        (b"\x08\x01" + field(2, field(2, b"\x08\x02")) + field(4, struct.pack("<ff", 0.5, 1.0)), None),
        (b"\x08\x07" + field(8, b"text"), None),
        (b"\x08\x01" + field(4, b"\x00"), None),
    ],
)
def test_a_tensor_of_one_number_is_a_scalar(tensor, value):
    assert scalar_of_tensor(tensor) == value
    got = read(VERSION + record(event(1, tensor_value("a", tensor))))
    assert places(got) == ([] if value is None else [(1, 1, {"a": value})])


def test_tensors_of_other_plugins_are_no_metrics():
    tensor = b"\x08\x01" + field(4, struct.pack("<f", 0.5))

    assert read(VERSION + record(event(1, tensor_value("a", tensor, "histograms")))).steps == ()


@given(st.binary(max_size=200))
def test_the_wire_reader_ends_or_refuses(data):
    try:
        for _ in fields(data):
            pass
        scalar_of_tensor(data)
    except MalformedError:
        return


def test_a_varint_without_end_is_refused():
    with pytest.raises(MalformedError):
        read_varint(b"\xff" * 20, 0)


def test_files_of_one_run_are_read_in_the_order_of_their_time(tmp_path):
    late, early = tmp_path / "events.out.tfevents.200.h.1.0", tmp_path / "events.out.tfevents.99.h.1.0"
    late.write_bytes(VERSION + scalar(2, "a", 2.0) + scalar(3, "a", 3.0))
    early.write_bytes(VERSION + scalar(1, "a", 1.0) + scalar(2, "a", 1.5) + scalar(3, "a", 1.0)[:-2])

    got = read_file(tmp_path)

    assert places(got) == [(1, 1, {"a": 1.0}), (1, 2, {"a": 2.0}), (1, 3, {"a": 3.0})]
    assert set(got.warnings) == {"truncated_record", "duplicate_step"}


def test_a_folder_of_several_runs_is_refused_by_name(tmp_path):
    for run in ("one", "two"):
        (tmp_path / run).mkdir()
        (tmp_path / run / "events.out.tfevents.1.h").write_bytes(VERSION)

    with pytest.raises(UnreadableLog, match=r"several runs \(one, two"):
        read_file(tmp_path)
