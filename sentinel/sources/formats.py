# SPDX-License-Identifier: Apache-2.0
"""Formats, recognised by content: a format is the one whose reader reads a record.

Names and endings of files are not looked at. Where no record stands yet, marks of a framework decide, and the result
says `no_metrics_yet`; where there are none of these either, the file is refused with a code.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import BinaryIO

from sentinel.errors import UnreadableLog
from sentinel.sources.documents import MAX_DOCUMENT, DocumentReader, kind_of_document
from sentinel.sources.hf_trainer import HfConsole, MsSwiftLog
from sentinel.sources.journal import JournalReader
from sentinel.sources.lines import MAX_LINE, Notes
from sentinel.sources.megatron import MegatronConsole
from sentinel.sources.other_consoles import MmEngine, Nanotron, Slime, TorchTitan
from sentinel.sources.reader import Parser, Reader, TextReader
from sentinel.sources.run_files import SwanlabRun, WandbRun
from sentinel.sources.tables import CsvTable
from sentinel.sources.tensorboard import EventReader, begins_event_file
from sentinel.sources.values import loads
from sentinel.sources.verl_console import VerlConsole
from sentinel.sources.verl_jsonl import Recording, VerlFileLogger

CHUNK = 1 << 20
"""Bytes that are read at a time."""

HEAD = 1 << 16
"""Bytes of the first look."""

PARSERS: tuple[type[Parser], ...] = (
    VerlConsole,
    VerlFileLogger,
    Recording,
    MegatronConsole,
    HfConsole,
    MsSwiftLog,
    Slime,
    TorchTitan,
    Nanotron,
    MmEngine,
    CsvTable,
)
"""Line-based formats; where two read equally many records, the earlier one is meant."""

DOCUMENTS = ("hf_trainer_state", "megatron_golden", "mindspeed_baseline", "wandb_summary")

JOURNALS: tuple[type[JournalReader], ...] = (WandbRun, SwanlabRun)
"""Run files of trackers."""

FORMATS = (
    *(parser.format for parser in PARSERS),
    *DOCUMENTS,
    *(journal.format for journal in JOURNALS),
    EventReader.format,
)
"""Names of all formats that are read from single files."""

# What a portion of a file must hold at least, so that it is worth reading as that format.
_SIGNS: dict[str, re.Pattern[bytes]] = {
    "verl_console": re.compile(rb"step[:=]\d+ -"),
    "verl_file_logger": re.compile(rb'"data"\s*:\s*\{'),
    "sentinel_recording": re.compile(rb'"t"\s*:\s*"step"'),
    "megatron": re.compile(rb"iteration\s+\d+\s*[/|]"),
    "hf_trainer": re.compile(rb"'(?:loss|eval_\w+|grad_norm|learning_rate|train_loss)'"),
    "ms_swift_jsonl": re.compile(rb'"(?:loss|eval_\w+|grad_norm|learning_rate|train_loss)"'),
    "slime": re.compile(rb"(?:step|perf|rollout|eval|passrate) \d+: \{"),
    "torchtitan": re.compile(rb"step:\s+\d+"),
    "nanotron": re.compile(rb"iteration: \d+ / \d+"),
    "mmengine": re.compile(rb"Iter\(train\)"),
    "csv": re.compile(rb"\A(?:\xef\xbb\xbf)?[^\r\n]*[,;\t][^\r\n]*\r?\n"),
}
# Marks of a run that has not printed a record yet. Tried in this order.
_MARKS: tuple[tuple[str, re.Pattern[bytes]], ...] = (
    ("verl_file_logger", re.compile(rb'\A(?:\xef\xbb\xbf)?\s*\{"step":\s*\d+,\s*"data":\s*\{')),
    ("sentinel_recording", re.compile(rb'\A\{"t":\s*"(?:start|step|health)"')),
    (
        "verl_console",
        re.compile(
            rb"['\"]actor_rollout_ref['\"]\s*:|\((?:TaskRunner\w*|WorkerDict|main_task|FullyAsync\w+) pid=\d+|"
            rb"grad_norm is not finite|(?m:^)step[:=]\d+ - [\w-]+/"
        ),
    ),
    ("megatron", re.compile(rb"iteration\s+\d+\s*/\s*\d+ \| consumed samples|using world size: \d+, data-parallel")),
    ("hf_trainer", re.compile(rb"\*\*\*\*\* Running training \*\*\*\*\*|(?m:^)\{'(?:loss|eval_loss)': ")),
    ("mmengine", re.compile(rb"- mmengine - INFO - ")),
    ("torchtitan", re.compile(rb"\[titan\] .* - root - INFO - ")),
)
_CONTAINERS = (
    (b"\x1f\x8b", "gzip"),
    (b"PK\x03\x04", "zip"),
    (b"\xfd7zXZ", "xz"),
    (b"BZh", "bzip2"),
    (b"\x28\xb5\x2f\xfd", "zstd"),
)
_UTF16 = (b"\xff\xfe", b"\xfe\xff")

Make = Callable[[], Reader]


@dataclass(frozen=True, slots=True)
class Format:
    """A recognised format."""

    name: str
    certain: bool
    """A record was read; False: only marks of the framework were seen."""


def make_reader(name: str) -> Reader:
    """A fresh reader of the format. Raises ValueError for a name that is none."""
    for parser in PARSERS:
        if parser.format == name:
            return TextReader(parser)
    if name in DOCUMENTS:
        return DocumentReader(name)
    if name == EventReader.format:
        return EventReader()
    for journal in JOURNALS:
        if journal.format == name:
            return journal()
    raise ValueError(f"{name} is no format; known are {', '.join(FORMATS)}")


class Recogniser:
    """Fed with the beginning of a file until a format is certain; keeps no more than one portion at a time."""

    def __init__(self) -> None:
        self._counts = dict.fromkeys((parser.format for parser in PARSERS), 0)
        self._mark: str | None = None
        self._portions = 0
        self._rest = b""

    def feed(self, chunk: bytes) -> Format | None:
        """The format, once it is certain."""
        if not self._portions and begins_event_file(chunk):
            return Format(EventReader.format, certain=True)
        if not self._portions and (found := [journal.format for journal in JOURNALS if journal.begins(chunk)]):
            return Format(found[0], certain=True)
        chunk = chunk.translate(None, b"\0")
        if self._mark is None:
            self._mark = next((name for name, mark in _MARKS if mark.search(chunk)), None)
        end = chunk.rfind(b"\n") + 1
        data, self._rest = self._rest + chunk[:end], chunk[end:] if end else self._rest + chunk
        if len(self._rest) > MAX_LINE:
            self._rest = b""
        return self._read(data)

    def finish(self) -> Format | None:
        """The format of a file that has ended, or was read so far; None where nothing is known in it."""
        best = self._read(self._rest)
        if best is None and self._mark is not None:
            return Format(self._mark, certain=False)
        return best

    def _read(self, data: bytes) -> Format | None:
        for parser in PARSERS:
            wanted = parser is not CsvTable or not self._portions  # the header stands at the beginning
            if wanted and _SIGNS[parser.format].search(data):
                reader = TextReader(parser)
                self._counts[parser.format] += len(reader.feed(data)) + len(reader.finish())
        self._portions += 1
        return self._best()

    def _best(self) -> Format | None:
        name = max(self._counts, key=lambda format_name: self._counts[format_name])
        return Format(name, certain=True) if self._counts[name] else None


def recognise(stream: BinaryIO, path: object) -> Format:
    """The format of a file that is open at its beginning. Raises UnreadableLog with a code of the format zoo."""
    head = stream.read(HEAD)
    if not head:
        raise UnreadableLog(path, "empty_file", "the file is empty: the run has not written anything yet")
    _refuse_containers(head, path)
    first = head.lstrip(b"\xef\xbb\xbf \t\r\n")[:1]
    recogniser = Recogniser()
    found = recogniser.feed(head)
    size = len(head)
    if found is None and first == b"{" and not _is_json_lines(head):
        document = _document(head + stream.read(MAX_DOCUMENT - len(head)), path)
        if document is not None:
            return document
        stream.seek(size)
    while found is None and (chunk := stream.read(CHUNK)):
        found = recogniser.feed(chunk)
    found = found or recogniser.finish()
    if found is None:
        raise UnreadableLog(path, "unknown_format", _why_unknown(head))
    return found


def _is_json_lines(head: bytes) -> bool:
    """Whether the first line is an object by itself and another one follows: then the file is no document."""
    line, _, rest = head.lstrip(b"\xef\xbb\xbf \t\r\n").partition(b"\n")
    if not rest.lstrip().startswith(b"{"):
        return False
    try:
        loads(line.decode("utf-8", "replace"), Notes())
    except ValueError:
        return False
    return True


def _document(data: bytes, path: object) -> Format | None:
    try:
        name = kind_of_document(loads(data.decode("utf-8-sig"), Notes()))
    except ValueError:
        if re.search(rb'"(?:log_history|nbformat)":', data):
            raise UnreadableLog(
                path, "unknown_format", "the JSON document is damaged or was copied while it was written; copy it again"
            ) from None
        return None
    if name == "notebook":
        raise UnreadableLog(
            path,
            "unsupported_container",
            "a log inside a notebook; save the cell's output as a text file and read that",
        )
    return None if name is None else Format(name, certain=True)


def _refuse_containers(head: bytes, path: object) -> None:
    for magic, name in _CONTAINERS:
        if head.startswith(magic):
            raise UnreadableLog(path, "unsupported_container", f"a {name} archive; unpack it and read what is inside")
    if head.startswith(_UTF16):
        raise UnreadableLog(path, "unsupported_container", "UTF-16 text; convert it first: iconv -f UTF-16 -t UTF-8")


def _why_unknown(head: bytes) -> str:
    if re.search(rb'\A\s*\{(?=.*"input":)(?=.*"output":)', head[:HEAD], re.DOTALL):
        return "rollout records, not metrics; use `sentinel rollout check`"
    control = sum(byte < 9 or 13 < byte < 27 for byte in head[:4096])
    if control > len(head[:4096]) // 20:
        return "binary data in no known format"
    return "no record of a known format in the file; `sentinel read --help` lists the formats"


def portions(stream: BinaryIO) -> Iterator[bytes]:
    """The rest of a stream in portions of bounded size."""
    while chunk := stream.read(CHUNK):
        yield chunk
