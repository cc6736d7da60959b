# SPDX-License-Identifier: Apache-2.0
"""The line core: line ends, the 4096 rule, bounded memory, prefixes and bars, numbers."""

from __future__ import annotations

import json
import math

import pytest

from sentinel.sources.lines import CUT_LENGTH, MAX_LINE, Line, Notes, Splitter, number, own_texts, plain, unwrap


def lines(*portions: bytes, notes: Notes | None = None) -> list[Line]:
    splitter = Splitter(notes or Notes())
    return [line for portion in portions for line in splitter.feed(portion)] + splitter.finish()


def texts(*portions: bytes) -> list[str]:
    return [line.text for line in lines(*portions)]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_every_kind_of_line_end_ends_a_line(end):
    assert [text for text in texts(f"a{end}b{end}c{end}".encode()) if text] == ["a", "b", "c"]


def test_a_line_end_that_is_cut_in_two_is_one_line_end():
    assert texts(b"a\r", b"\nb\r\n") == ["a", "b"]


def test_the_last_line_is_marked_as_unfinished():
    assert lines(b"a\nb")[-1] == Line("b", ended=False)
    assert lines(b"a\nb\n")[-1] == Line("b", ended=True)


def test_a_character_that_is_cut_in_two_is_put_together():
    text = "第3步\n".encode()

    assert [texts(text[:at], text[at:]) for at in range(len(text))] == [["第3步"]] * len(text)


def test_a_bad_byte_is_replaced_and_said():
    notes = Notes()

    assert lines(b"a\xffb\n", notes=notes)[0].text == "a\ufffdb"
    assert notes.codes == ("invalid_utf8",)


def test_only_a_line_of_exactly_4096_characters_may_be_cut():
    cut = {length: lines(b"x" * length + b"\n")[0].cut for length in (4095, 4096, 4097)}

    assert cut == {4095: False, 4096: True, 4097: False}
    assert lines("é".encode() * CUT_LENGTH + b"\n")[0].cut


def test_of_a_cut_line_only_the_last_part_is_cut():
    physical = b"bar\r" + b"x" * (CUT_LENGTH - 4) + b"\n"

    assert [line.cut for line in lines(physical)] == [False, True]


def test_bars_without_line_end_are_released_before_the_line_end_comes():
    splitter = Splitter(Notes())
    released = [line for _ in range(400) for line in splitter.feed(b"\r 12%|#   | 1/8 [01:16<05:43, 38.11s/it]")]

    assert len(released) > 200
    assert len(splitter.to_plain()["tail"]) < 2 * CUT_LENGTH


def test_an_endless_line_is_left_out_in_bounded_memory_and_the_next_one_is_read():
    notes, splitter, largest = Notes(), Splitter(Notes()), 0
    splitter._notes = notes
    got = []
    for _ in range(40):
        got += splitter.feed(b"x" * (1 << 20))
        largest = max(largest, len(splitter._tail))
    got += splitter.feed(b"x\nnext\n")

    assert [line.text for line in got] == ["next"]
    assert "line_too_long" in notes.codes
    assert largest <= MAX_LINE + (1 << 20)


def test_a_saved_state_goes_on_in_the_middle_of_a_character():
    first = Splitter(Notes())
    first.feed("a\n第".encode()[:-1])
    second = Splitter(Notes())
    second.restore(json.loads(json.dumps(first.to_plain())))

    assert [line.text for line in second.feed("第".encode()[-1:] + b"\n")] == ["第"]


def test_colours_and_the_repetition_mark_are_removed():
    assert (
        plain("\x1b[2m\x1b[36m(a)\x1b[0m x\x1b[38;2;1;2;3my \x1b[32m [repeated 3x across cluster]\x1b[0m") == "(a) xy"
    )


def test_a_prefix_names_the_process():
    (own,) = own_texts("\x1b[36m(TaskRunner pid=7, ip=192.0.2.1)\x1b[0m step:1 - a/b:1")

    assert (own.process, own.text, own.glued) == ("TaskRunner pid=7, ip=192.0.2.1", "step:1 - a/b:1", False)


def test_what_stands_behind_a_bar_or_another_prefix_is_a_text_of_its_own():
    bar = "Training:   7%|#   | 3/40 [01:16<05:43, 38.11s/it]"
    found = own_texts(f"(A pid=1) first{bar}{bar}second(B pid=2) third")

    assert [(own.text.removesuffix("Training:   "), own.process) for own in found if own.text != "Training:   "] == [
        ("first", "A pid=1"),
        ("second", "A pid=1"),
        ("third", "B pid=2"),
    ]
    assert found[-2].bars == ((3, 40),)
    assert [own.glued for own in found][-3:] == [True, True, False]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1", 1.0),
        ("-.0215", -0.0215),
        ("1E-6", 1e-6),
        ("+0.25", 0.25),
        ("5.", 5.0),
        ("INF", math.inf),
        ("-Infinity", -math.inf),
        ("True", 1.0),
        ("False", 0.0),
        ("np.float64(0.5)", 0.5),
        ("np.int32(-3)", -3.0),
        ("np.float32(-inf)", -math.inf),
        ("1,204,566", 1204566.0),
        (" 2 ", 2.0),
    ],
)
def test_spellings_of_numbers(text, value):
    assert number(text) == value


@pytest.mark.parametrize("text", ["nan", "NaN", "-nan", "np.float64(nan)", "NAN"])
def test_spellings_of_nan(text):
    assert math.isnan(number(text))


@pytest.mark.parametrize(
    "text",
    ["", "1.2.3", "1_000", "a", "nano", "inferred", "1,2", "12,34", "0x10", "--1", "1e", "np.float64(0.", "1 2", "."],
)
def test_what_is_no_number(text):
    assert number(text) is None


def test_reprs_are_unwrapped_inside_a_text():
    assert unwrap("a:np.float64(0.5) - b:np.int64(3) - c:np.array([1])") == "a:0.5 - b:3 - c:np.array([1])"


def test_a_note_is_said_once_and_a_signal_each_time():
    notes = Notes()
    for _ in range(2):
        notes.add("value_cut", "x")
        notes.again("worker_non_finite", "y")

    assert notes.codes == ("value_cut", "worker_non_finite")
    assert [code for code, _ in notes.drain()] == ["value_cut", "worker_non_finite", "worker_non_finite"]
    assert notes.drain() == ()
