# SPDX-License-Identifier: Apache-2.0
"""Valid logs, cut, glued, wrapped, coloured and corrupted at random places: never a wrong number, never a silent loss."""

from __future__ import annotations

import re

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from sentinel.errors import UnreadableLog
from sentinel.sources import read_file
from tests.sources.logs import ANY_LOG, CONSOLES, Log, lost, megatron_logs, read, verl_logs, wrong_numbers

PROPERTY = settings(deadline=None, max_examples=60)
pytestmark = pytest.mark.timeout(120)

COLOURS = st.sampled_from(["\x1b[36m", "\x1b[0m", "\x1b[38;2;180;60;0m", "\x1b[2m"])
BAR = "Training Progress:   5%|▌         | 2/40 [01:16<05:43, 38.11s/it]"
NOISE = st.sampled_from(
    [
        "",
        "[response] we get step:7 - rate:30 of it, nan and inf",
        "(WorkerDict pid=9) INFO:2031-02-03 04:05:06,789:queue size 3",
        BAR,
        f"\r{BAR}\r{BAR}",
        "{'actor_rollout_ref': {'actor': {'clip_ratio': 0.2,",
        "第 3 步已完成，耗时：正常",
        "Traceback (most recent call last):",
        "time (ms) | forward-compute: 71.5 | optimizer: 9.5",
    ]
)
GLUED = st.sampled_from(
    [
        "(TaskRunner pid=7716, ip=192.0.2.14) INFO:2031-02-03 04:05:06,789:queue size 3",
        f" {BAR}",
        BAR,
        " \ufffd\ufffd",
        "\x1b[32m [repeated 3x across cluster]\x1b[0m",
    ]
)


@PROPERTY
@given(ANY_LOG)
def test_a_valid_log_is_read_whole_and_right(log):
    got = read(log.format, log.data())

    assert not wrong_numbers(log, got)
    assert not lost(log, got)
    assert {"value_cut", "glued_text", "corrupt_line", "orphan_fragment"}.isdisjoint(got.warnings)


@PROPERTY
@given(ANY_LOG, st.data())
def test_a_file_cut_anywhere_loses_nothing_before_the_cut_and_says_what_was_cut(log, data):
    whole = log.data()
    cut = data.draw(st.integers(0, len(whole)))

    got = read(log.format, whole[:cut])

    assert not wrong_numbers(log, got)
    finished = whole[:cut].count(b"\n")
    assert not [(step, key) for step, key in lost(log, got) if step <= finished]
    rest = whole[:cut].rpartition(b"\n")[2]
    # Of a line that lacks its line end alone nothing is lost where the format shows its end otherwise (a closing brace).
    if b"step" in rest and len(rest) > 60 and rest.decode(errors="replace") not in log.lines:
        assert {"truncated_line", "value_cut"} & set(got.warnings)


@PROPERTY
@given(CONSOLES, st.data())
def test_colours_and_line_ends_change_nothing(log, data):
    lines = []
    for line in log.lines:
        for _ in range(data.draw(st.integers(0, 3))):
            at = data.draw(st.integers(0, len(line)))
            if "\x1b" not in line[max(0, at - 20) : at + 20]:
                line = line[:at] + data.draw(COLOURS) + line[at:]
        lines.append(line)
    end = data.draw(st.sampled_from(["\n", "\r\n", "\r", "\n\n"]))

    got = read(log.format, "".join(f"{line}{end}" for line in lines).encode())

    assert not wrong_numbers(log, got)
    assert not lost(log, got)


@PROPERTY
@given(CONSOLES, st.data())
def test_lines_of_others_change_nothing(log, data):
    lines = []
    for line in log.lines:
        lines += [*data.draw(st.lists(NOISE, max_size=3)), line]

    got = read(log.format, Log(log.format, lines, {}).data())

    assert not wrong_numbers(log, got)
    assert not lost(log, got)


@PROPERTY
@given(st.one_of(verl_logs(), megatron_logs()), st.data())
def test_foreign_text_behind_a_record_is_removed(log, data):
    lines = [line + data.draw(GLUED) for line in log.lines]

    got = read(log.format, Log(log.format, lines, {}).data())

    assert not wrong_numbers(log, got)
    if log.format == "verl_console":
        assert not lost(log, got)


@PROPERTY
@given(verl_logs(), st.sampled_from([BAR, "", "(TaskRunner pid=7) "]))
def test_verl_records_that_stand_on_one_line_are_parted(log, between):
    got = read(log.format, between.join(log.lines).encode() + b"\n")

    assert not wrong_numbers(log, got)
    assert not lost(log, got)


@PROPERTY
@given(ANY_LOG)
def test_records_whose_line_end_is_lost_are_read_right_or_missed_aloud(log):
    got = read(log.format, "".join(log.lines).encode() + b"\n")

    assert not wrong_numbers(log, got)
    assert not lost(log, got) or got.warnings


@PROPERTY
@given(ANY_LOG, st.integers(min_value=30, max_value=200))
def test_hard_wraps_are_joined_or_missed_aloud(log, width):
    assume(log.format in ("verl_console", "megatron", "hf_trainer", "verl_file_logger"))
    lines = [line[at : at + width] for line in log.lines for at in range(0, len(line), width)]

    got = read(log.format, Log(log.format, lines, {}).data())

    assert not wrong_numbers(log, got)
    assert not lost(log, got) or got.warnings


@PROPERTY
@given(verl_logs(), st.integers(min_value=40, max_value=200))
def test_a_wrapped_verl_log_is_read_whole(log, width):
    lines = [line[at : at + width] for line in log.lines for at in range(0, len(line), width)]

    got = read(log.format, Log(log.format, lines, {}).data())

    assert not wrong_numbers(log, got)
    assert not lost(log, got)
    assert "wrapped_line" in got.warnings or len(lines) == len(log.lines)


@pytest.mark.parametrize("damaged", ["step:1 -xactor/entropy", "step:1 -actor/entropy", "step:1 -~actor/entropy"])
def test_a_marker_that_lost_its_blank_makes_no_key_of_another_name(damaged):
    lines = [f"{damaged}:0.5 - actor/grad_norm:2.0 - actor/lr:1.0", "step:2 - actor/entropy:0.5 - actor/grad_norm:2.0"]

    got = read("verl_console", Log("verl_console", lines, {}).data())

    assert {key for step in got.steps for key in step.metrics} <= {"actor/entropy", "actor/grad_norm", "actor/lr"}
    assert got.warnings


def test_a_list_cut_right_behind_a_separator_goes_on_in_the_next_line():
    line = "step:1 - actor/entropy:np.float64(0.5) - val-core/arith@2/acc/mean@1:np.float64(0.25) - actor/lr:np.float64(1.0)"
    lines = [line[at : at + 40] for at in range(0, len(line), 40)]
    assert lines[0].endswith(" -")

    got = read("verl_console", Log("verl_console", lines, {}).data())

    (reading,) = [step for step in got.steps if step.kind == "train"]
    assert reading.metrics["actor/entropy"] == 0.5
    assert reading.metrics["actor/lr"] == 1.0


@PROPERTY
@given(ANY_LOG, st.sampled_from([b"\xff", b"\xfe\xff", b"\xc0", b"\xb8\xcb", b"\xe6\xe6"]), st.data())
def test_stray_bytes_never_make_a_wrong_number_and_are_reported(log, stray, data):
    whole = log.data()
    at = data.draw(st.integers(0, len(whole)))

    got = read(log.format, whole[:at] + stray + whole[at:])

    assert not wrong_numbers(log, got)
    assert not lost(log, got) or got.warnings


@PROPERTY
@given(verl_logs(), st.sampled_from("xQ;~|"), st.data())
def test_a_damaged_value_or_separator_is_missed_aloud(log, letter, data):
    whole = log.data().decode()
    values = [range(*match.span(1)) for match in re.finditer(r":(\S+)(?= - |\n)", whole)]
    separators = [range(*match.span()) for match in re.finditer(r"(?<=\S) - ", whole)]
    at = data.draw(st.sampled_from([spot for spots in values + separators for spot in spots]))

    got = read(log.format, (whole[:at] + letter + whole[at + 1 :]).encode())

    assert not wrong_numbers(log, got)
    assert not lost(log, got) or got.warnings


@PROPERTY
@given(st.lists(verl_logs(), min_size=2, max_size=3))
def test_logs_one_after_the_other_are_attempts(logs):
    got = read("verl_console", b"".join(log.data() for log in logs))

    # a restart shows only where the steps fall; two runs of which the second goes on are one
    assert {reading.attempt for reading in got.steps} == set(range(1, len(logs) + 1))
    for attempt, log in enumerate(logs, start=1):
        of_attempt = [r for r in got.steps if r.attempt == attempt]
        assert {r.step for r in of_attempt} == set(log.truth)


@PROPERTY
@given(st.binary(max_size=2000))
@example(b"step:")
@example(b"\x00" * 100)
@example(b"{" * 3000)
@example(b'{"step": 1, "data": ' + b"[" * 3000)
def test_any_bytes_are_read_or_refused_with_a_code(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("any") / "log"
    path.write_bytes(data)
    refusal = None
    try:
        read_file(path)
    except UnreadableLog as error:
        refusal = error
    assert refusal is None or refusal.code in ("unknown_format", "empty_file", "unsupported_container")
    assert "\n" not in str(refusal)


@PROPERTY
@given(st.text(alphabet="step:0123456789 -/.abnfi\n\r(){}'|,\x1b[m%", max_size=400), st.integers(1, 50))
def test_any_text_gives_the_same_in_portions(text, size):
    from sentinel.sources.files import result
    from sentinel.sources.formats import PARSERS
    from sentinel.sources.reader import TextReader

    data = text.encode()
    for parser in PARSERS:
        one, many = TextReader(parser), TextReader(parser)
        whole = result(one, one.feed(data) + one.finish())
        parts = [r for at in range(0, len(data), size) for r in many.feed(data[at : at + size])]

        assert str(result(many, parts + many.finish()).steps) == str(whole.steps)
