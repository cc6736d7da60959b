# SPDX-License-Identifier: Apache-2.0
"""The journal keeps what it said it kept: through kills, cuts, flipped bytes and full disks."""

import errno
import math
import os
import resource
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sentinel.errors import JournalError
from sentinel.storage import entry_lines
from sentinel.storage.journal import Journal, Retention
from sentinel.storage.journal_reading import read_entries
from sentinel.storage.run_folders import read_run_name
from tests.support.properties import unhurried

ROOT = Path(__file__).parents[2]
NOTHING_RETAINED = Retention(history_entries=0, history_bytes=0)


def filled(folder: Path, count: int = 8) -> list[entry_lines.Entry]:
    """A journal of `count` step marks of different lengths."""
    with Journal(folder) as journal:
        for step in range(1, count + 1):
            journal.append("step", {"step": step, "text": "x" * (7 * step)})
        return list(journal.read())


def segment(folder: Path) -> Path:
    return next(folder.glob("entries-*.jsonl"))


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    folder = tmp_path_factory.mktemp("written") / "journal"
    entries = filled(folder)
    return segment(folder).read_bytes(), entries


def laid_out(content: bytes, folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    for old in folder.iterdir():
        old.unlink()
    (folder / "entries-000000000001.jsonl").write_bytes(content)
    return folder


def test_entries_come_back_in_order_with_numbers_that_are_not_finite(tmp_path):
    payload = {
        "nan": math.nan,
        "inf": math.inf,
        "minus": -math.inf,
        "tiny": 5e-324,
        "text": 'line\nbreak "q" \ud800 中',
    }

    with Journal(tmp_path / "j") as journal:
        assert [journal.append("step", {"a": 1}), journal.append("incident", payload)] == [1, 2]
    with Journal(tmp_path / "j") as journal:
        first, second = journal.read()

    assert (first.seq, first.kind, first.payload) == (1, "step", {"a": 1})
    assert math.isnan(second.payload.pop("nan"))
    assert second.payload == {key: value for key, value in payload.items() if key != "nan"}


@unhurried
@given(cut=st.integers(min_value=0))
def test_any_cut_loses_at_most_the_last_record(written, tmp_path_factory, cut):
    content, entries = written
    cut %= len(content) + 1
    folder = laid_out(content[:cut], tmp_path_factory.getbasetemp() / "cut")
    whole = content[:cut].count(b"\n") - 1  # the header is a line too

    with Journal(folder) as journal:
        kept = list(journal.read())
        added = journal.append("step", {"after": True})

    assert kept == entries[: max(whole, 0)]
    assert added == len(kept) + 1
    assert [entry.seq for entry in read_entries(folder)] == list(range(1, added + 1))


@unhurried
@given(position=st.integers(min_value=0), bit=st.integers(0, 7))
def test_no_flipped_bit_brings_back_an_altered_entry(written, tmp_path_factory, position, bit):
    content, entries = written
    broken = bytearray(content)
    broken[position % len(content)] ^= 1 << bit
    folder = laid_out(bytes(broken), tmp_path_factory.getbasetemp() / "flip")

    try:
        with Journal(folder) as journal:
            kept = list(journal.read())
    except JournalError:
        kept = None  # refused: the flip made another version number

    if kept is None:
        assert entry_lines.header_version(broken.split(b"\n")[0]) not in (None, entry_lines.VERSION)
        return
    assert all(entry in entries for entry in kept)
    assert len(kept) >= len(entries) - 2  # a flipped line break glues two


def test_a_torn_tail_is_cut_off_and_said_once(tmp_path):
    filled(tmp_path)
    with segment(tmp_path).open("ab") as stream:
        stream.write(b'{"seq":9,"kind":"st')

    with Journal(tmp_path) as journal:
        said = journal.repaired
    with Journal(tmp_path) as again:
        silent = again.repaired

    assert said is not None
    assert "the last 19 bytes" in said
    assert silent is None


def test_a_damaged_line_in_the_middle_is_left_out_and_counted(tmp_path):
    filled(tmp_path)
    lines = segment(tmp_path).read_bytes().splitlines(keepends=True)
    lines[3] = lines[3].replace(b"x", b"y", 1)
    segment(tmp_path).write_bytes(b"".join(lines))

    with Journal(tmp_path) as journal:
        assert journal.damaged == 1
        assert [entry.seq for entry in journal.read()] == [1, 2, 4, 5, 6, 7, 8]
        assert journal.append("step", {}) == 9


def test_reading_starts_from_the_newest_snapshot(tmp_path):
    with Journal(tmp_path) as journal:
        journal.append("step", {"step": 1})
        journal.write_snapshot({"state": 1})
        journal.append("step", {"step": 2})
        journal.write_snapshot({"state": 2})
        journal.append("step", {"step": 3})

    with Journal(tmp_path) as journal:
        assert [(e.seq, e.kind, e.payload) for e in journal.read()] == [
            (2, "snapshot", {"state": 2}),
            (3, "step", {"step": 3}),
        ]
        assert journal.append("step", {}) == 4


def test_a_damaged_snapshot_is_passed_over_and_nothing_is_lost(tmp_path):
    with Journal(tmp_path, retention=NOTHING_RETAINED) as journal:
        for number in (1, 2, 3):
            journal.append("step", {"step": number})
            journal.write_snapshot({"state": number})
        journal.append("step", {"step": 4})
    newest = max(tmp_path.glob("snapshot-*.json"))
    newest.write_bytes(newest.read_bytes()[:-4])

    entries = list(read_entries(tmp_path))

    assert [(e.seq, e.kind) for e in entries] == [(2, "snapshot"), (3, "step"), (4, "step")]


def test_a_snapshot_that_was_not_finished_is_no_snapshot(tmp_path):
    filled(tmp_path, 3)
    (tmp_path / ".snapshot-000000000003.json.tmp").write_bytes(b'{"seq":3,')

    with Journal(tmp_path) as journal:
        assert [entry.seq for entry in journal.read()] == [1, 2, 3]

    assert not list(tmp_path.glob(".*.tmp"))


def test_the_disk_stays_bounded_and_history_keeps_the_newest(tmp_path):
    retention = Retention(snapshot_entries=50, history_entries=200, history_bytes=1 << 30)
    with Journal(tmp_path, retention=retention) as journal:
        sizes = []
        for step in range(2000):
            journal.append("step", {"step": step})
            if journal.snapshot_due:
                journal.write_snapshot({"last": step})
                sizes.append(journal.bytes_used())
        history = [entry.payload["step"] for entry in journal.history()]

    assert sizes[-1] < 1.2 * sizes[10]
    assert history == list(range(history[0], 2000))
    assert 200 <= len(history) <= 300


def test_nothing_is_deleted_that_no_snapshot_covers(tmp_path):
    with Journal(tmp_path, retention=NOTHING_RETAINED) as journal:
        for step in range(100):
            journal.append("step", {"step": step})

        assert len(list(journal.read())) == 100


def test_a_snapshot_is_due_after_so_many_entries_or_bytes(tmp_path):
    with Journal(tmp_path, retention=Retention(snapshot_entries=3, snapshot_bytes=1000)) as journal:
        due = []
        for _ in range(3):
            journal.append("step", {})
            due.append(journal.snapshot_due)
        journal.write_snapshot({})
        after = journal.snapshot_due
        journal.append("step", {"text": "x" * 1000})

        assert (due, after, journal.snapshot_due) == ([False, False, True], False, True)


@pytest.fixture
def file_size_limit():
    """Sets the largest size of a file, as a full disk would: a write stops in the middle, then fails."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    yield lambda size: resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_full_disk_is_a_clear_error_and_writing_goes_on_when_there_is_room(tmp_path, file_size_limit):
    with Journal(tmp_path) as journal:
        journal.append("step", {"step": 1})
        before = segment(tmp_path).read_bytes()
        file_size_limit(len(before) + 20)
        with pytest.raises(JournalError, match="could not be written"):
            journal.append("incident", {"text": "x" * 100})
        with pytest.raises(JournalError):
            journal.append("step", {"text": "x" * 100})
        full = segment(tmp_path).read_bytes()
        file_size_limit(1 << 30)
        due = journal.snapshot_due
        number = journal.append("step", {"step": 2})
        journal.write_snapshot({"whole": True})

        assert (full, number, journal.lost) == (before, 2, 2)
        assert (due, journal.snapshot_due) == (True, False)
        assert [e.payload for e in journal.history()] == [{"step": 1}, {"step": 2}]


def test_a_snapshot_on_a_full_disk_leaves_the_earlier_one_in_force(tmp_path, file_size_limit):
    with Journal(tmp_path) as journal:
        journal.append("step", {"step": 1})
        journal.write_snapshot({"state": 1})
        journal.append("step", {"step": 2})
        file_size_limit(200)
        with pytest.raises(JournalError, match="snapshot"):
            journal.write_snapshot({"state": "x" * 500})
        file_size_limit(1 << 30)

        assert [(e.seq, e.kind) for e in journal.read()] == [(1, "snapshot"), (2, "step")]
    assert not list(tmp_path.glob(".*.tmp"))


class FullWhenSegmentBegins(Journal):
    """A journal whose disk fills up just as a new segment gets its header."""

    full = False

    def _write(self, line: bytes) -> None:
        if self.full and line.startswith(b'{"sentinel_journal"'):
            os.write(self._file, line[:5])
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        super()._write(line)


def test_a_disk_that_fills_up_between_two_segments_loses_no_later_entry(tmp_path):
    with FullWhenSegmentBegins(tmp_path) as journal:
        journal.append("step", {"step": 1})
        journal.full = True
        with pytest.raises(JournalError):
            journal.write_snapshot({"state": 1})
        with pytest.raises(JournalError):
            journal.append("step", {"step": 2})
        journal.full = False
        journal.append("step", {"step": 3})

    assert [(e.seq, e.payload) for e in read_entries(tmp_path)] == [(1, {"state": 1}), (2, {"step": 3})]


def test_a_journal_that_somebody_deleted_begins_anew_and_wants_a_snapshot(tmp_path):
    folder = tmp_path / "j"
    with Journal(folder, run="grpo") as journal:
        journal.append("step", {"step": 1})
        shutil.rmtree(folder)

        assert journal.append("step", {"step": 2}) == 2
        assert journal.snapshot_due
        journal.write_snapshot({"whole": True})
        with pytest.raises(JournalError, match="another daemon"):
            Journal(folder)
    assert [(e.seq, e.kind) for e in read_entries(folder)] == [(2, "snapshot")]
    assert read_run_name(folder) == "grpo"


def test_a_second_writer_is_refused_and_a_reader_is_not(tmp_path):
    with Journal(tmp_path) as journal:
        journal.append("step", {})
        with pytest.raises(JournalError, match="another daemon"):
            Journal(tmp_path)

        assert len(list(read_entries(tmp_path))) == 1
    Journal(tmp_path).close()


def test_another_format_is_refused_and_left_alone(tmp_path):
    path = tmp_path / "entries-000000000001.jsonl"
    path.write_bytes(b'{"sentinel_journal":2,"first":1}\nwhatever\n')

    with pytest.raises(JournalError, match="journal format 2"):
        Journal(tmp_path)

    assert path.read_bytes().endswith(b"whatever\n")


def test_a_folder_that_cannot_be_made_is_a_clear_error(tmp_path):
    (tmp_path / "file").write_text("")

    with pytest.raises(JournalError, match="cannot be opened"):
        Journal(tmp_path / "file" / "journal")


WRITER = """
    import sys
    from pathlib import Path
    from sentinel.storage.journal import Journal, Retention
    journal = Journal(Path(sys.argv[1]), run="r", retention=Retention(snapshot_entries=40))
    while True:
        seq = journal.append("step", {"values": {"loss": float("nan"), "text": "x" * 300}})
        print(seq, flush=True)
        if journal.snapshot_due:
            journal.write_snapshot({"seq": seq})
"""


@pytest.mark.parametrize("lines", [1, 39, 40, 41, 777])
def test_a_killed_writer_has_kept_every_entry_that_it_was_told_of(tmp_path, lines):
    writer = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(WRITER), str(tmp_path)], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    for _ in range(lines):
        told = int(writer.stdout.readline())
    writer.kill()
    rest = writer.stdout.read().split()
    writer.wait()
    writer.stdout.close()
    told = int(rest[-1]) if rest and f"{rest[-1]}".isdecimal() else told

    with Journal(tmp_path) as journal:
        entries = list(journal.read())
        history = [entry.seq for entry in journal.history()]

        assert journal.last_seq in (told, told + 1)
        assert history == list(range(1, journal.last_seq + 1))
        assert all(math.isnan(e.payload["values"]["loss"]) for e in entries if e.kind == "step")
        assert journal.append("step", {}) == history[-1] + 1
