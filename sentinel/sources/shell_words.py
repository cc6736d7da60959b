# SPDX-License-Identifier: Apache-2.0
"""A shell script as statements of words: enough of bash to know what a launch script starts, and nothing is run.

Quotes, escapes, line continuations, comments, variables with defaults, arrays and here-documents are understood;
what only a shell can know (`$(...)`, `$1`, arithmetic) is kept as text and marked as unresolved.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_NAME = re.compile(r"[A-Za-z_]\w*")
_BRACED = re.compile(r"(?P<name>[A-Za-z_]\w*|[@*#?$!0-9])(?P<index>\[[^\]]*\])?(?P<rest>.*)", re.DOTALL)
_HEREDOC = re.compile(r"<<(?P<dash>-?)\s*(?P<quote>['\"\\]?)(?P<word>[\w.-]+)['\"]?")


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of a word."""

    text: str
    """Of a literal its text; of an expansion the name, or the whole text where only a shell knows its value."""
    kind: str = "literal"
    """literal, variable, array, unknown."""
    quoted: bool = False
    default: str | None = None
    """What stands where the variable is not set."""


@dataclass
class Word:
    """A word before expansion."""

    parts: list[Part] = field(default_factory=list)

    def add(self, text: str, *, quoted: bool) -> None:
        """Append literal text."""
        last = self.parts[-1] if self.parts else None
        if last is not None and last.kind == "literal" and last.quoted == quoted:
            self.parts[-1] = Part(last.text + text, quoted=quoted)
        else:
            self.parts.append(Part(text, quoted=quoted))

    @property
    def bare(self) -> str:
        """The text, if the word is one unquoted literal; else empty."""
        return (
            self.parts[0].text
            if len(self.parts) == 1 and not self.parts[0].quoted and self.parts[0].kind == "literal"
            else ""
        )


@dataclass
class Statement:
    """A simple command with its assignments, and the text of its here-document."""

    words: list[Word | Array]
    line: int
    """Number of the line that it begins on, from 1."""
    document: str = ""


@dataclass
class Array:
    """`NAME=(...)` or `NAME+=(...)`."""

    name: str
    adds: bool
    words: list[Word]


class Script:
    """Reads the statements of a script's text."""

    def __init__(self, text: str) -> None:
        self._text = text.replace("\r\n", "\n")
        self._at = 0
        self.statements: list[Statement] = []
        self._words: list[Word | Array] = []
        self._word: Word | None = None
        self._begins = 0
        self._documents: list[tuple[str, bool]] = []
        self._read()

    # ------------------------------------------------------------------ the reader

    def _read(self) -> None:
        text = self._text
        while self._at < len(text):
            character = text[self._at]
            if character == "\\":
                self._escape()
            elif character in "'\"":
                self._quote(character)
            elif character in "$`":
                self._expansion(quoted=False)
            elif character in " \t":
                self._end_word()
                self._at += 1
            elif character == "#" and self._word is None:
                end = text.find("\n", self._at)
                self._at = len(text) if end < 0 else end
            elif character in "\n;&|<>()":
                self._operator(character)
            else:
                self._append(character, quoted=False)
                self._at += 1
        self._end_statement()

    def _append(self, text: str, *, quoted: bool) -> None:
        if self._word is None:
            self._word = Word()
            if not self._words:
                self._begins = self._at
        self._word.add(text, quoted=quoted)

    def _escape(self) -> None:
        following = self._text[self._at + 1 : self._at + 2]
        if following and following != "\n":
            self._append(following, quoted=True)
        self._at += 2

    def _quote(self, quote: str) -> None:
        self._append("", quoted=True)
        self._at += 1
        while self._at < len(self._text):
            character = self._text[self._at]
            if character == quote:
                self._at += 1
                return
            following = self._text[self._at + 1 : self._at + 2]
            if quote == '"' and character == "\\" and following and following in '"\\$`\n':
                if following != "\n":
                    self._append(following, quoted=True)
                self._at += 2
            elif quote == '"' and character in "$`":
                self._expansion(quoted=True)
            else:
                self._append(character, quoted=True)
                self._at += 1

    def _operator(self, character: str) -> None:
        text = self._text
        if character == "(" and self._array():
            return
        if character == "<" and text.startswith("<<<", self._at):
            self._end_word()
            self._at += 3
            return
        match = _HEREDOC.match(text, self._at) if character == "<" else None
        if match:
            self._end_word()
            self._documents.append((match.group("word"), bool(match.group("dash"))))
            self._at = match.end()
            return
        if character in "<>":
            self._redirection()
            return
        self._at += 1
        if character == "&" and text[self._at : self._at + 1] == ">":
            return
        self._end_statement()
        if character == "\n" and self._documents:
            self._read_documents()

    def _redirection(self) -> None:
        """Pass over `2>&1`, `> file`, `>> file`: they say nothing about what is started."""
        if self._word is not None and self._word.bare.isdigit():
            self._word = None
        self._end_word()
        match = re.compile(r"[<>]+&?-?\s*(?:\d+|[^\s;&|<>()]*)").match(self._text, self._at)
        self._at = match.end() if match else self._at + 1

    def _array(self) -> bool:
        """Read `NAME=( ... )`; return False where this bracket begins something else."""
        bare = self._word.bare if self._word is not None else ""
        match = re.fullmatch(r"([A-Za-z_]\w*)(\+?)=", bare)
        if match is None:
            return False
        begins = self._begins if not self._words else None
        outer, self._words, self._word = self._words, [], None
        self._at += 1
        while self._at < len(self._text) and self._text[self._at] != ")":
            character = self._text[self._at]
            if character in " \t\n":
                self._end_word()
                self._at += 1
            elif character == "#" and self._word is None:
                end = self._text.find("\n", self._at)
                self._at = len(self._text) if end < 0 else end
            elif character == "\\":
                self._escape()
            elif character in "'\"":
                self._quote(character)
            elif character in "$`":
                self._expansion(quoted=False)
            else:
                self._append(character, quoted=False)
                self._at += 1
        self._end_word()
        inner = [word for word in self._words if isinstance(word, Word)]
        self._at += 1
        self._words = [*outer, Array(match.group(1), bool(match.group(2)), inner)]
        if begins is not None:
            self._begins = begins
        return True

    def _expansion(self, *, quoted: bool) -> None:
        """Read what begins with `$` or a backtick."""
        text, at = self._text, self._at
        if self._word is None:
            self._append("", quoted=quoted)
        assert self._word is not None
        if text[at] == "`":
            end = text.find("`", at + 1)
            end = len(text) if end < 0 else end + 1
            self._word.parts.append(Part(text[at:end], "unknown", quoted))
        elif text.startswith("$(", at):
            end = self._closing(at + 1, "(", ")")
            self._word.parts.append(Part(text[at:end], "unknown", quoted))
        elif text.startswith("${", at):
            end = self._closing(at + 1, "{", "}")
            self._word.parts.append(_braced(text[at + 2 : end - 1], text[at:end], quoted=quoted))
        elif text.startswith("$'", at) and not quoted:
            self._at += 1
            self._quote("'")
            return
        else:
            match = _NAME.match(text, at + 1)
            if match:
                end = match.end()
                self._word.parts.append(Part(match.group(), "variable", quoted))
            elif text[at + 1 : at + 2] in tuple("@*#?!0123456789"):
                end = at + 2
                self._word.parts.append(Part(text[at:end], "unknown", quoted))
            else:
                end = at + 1
                self._word.add("$", quoted=quoted)
        self._at = end

    def _closing(self, at: int, opening: str, closing: str) -> int:
        depth = 0
        for place in range(at, len(self._text)):
            depth += (self._text[place] == opening) - (self._text[place] == closing)
            if depth == 0:
                return place + 1
        return len(self._text)

    def _end_word(self) -> None:
        if self._word is not None:
            self._words.append(self._word)
            self._word = None

    def _end_statement(self) -> None:
        self._end_word()
        if self._words:
            line = self._text.count("\n", 0, self._begins) + 1
            self.statements.append(Statement(self._words, line))
            self._words = []

    def _read_documents(self) -> None:
        """Read the here-documents that the line before asked for; they belong to its statement."""
        for word, dash in self._documents:
            lines: list[str] = []
            while self._at < len(self._text):
                end = self._text.find("\n", self._at)
                end = len(self._text) if end < 0 else end
                line = self._text[self._at : end]
                self._at = end + 1
                if (line.lstrip("\t") if dash else line) == word:
                    break
                lines.append(line)
            if self.statements:
                self.statements[-1].document += "\n".join(lines) + "\n"
        self._documents.clear()


def _braced(inside: str, whole: str, *, quoted: bool) -> Part:
    match = _BRACED.fullmatch(inside)
    if match is None or not _NAME.fullmatch(match.group("name")):
        return Part(whole, "unknown", quoted)
    name, index, rest = match.group("name", "index", "rest")
    if index in ("[@]", "[*]") and not rest:
        return Part(name, "array", quoted)
    if index:
        return Part(whole, "unknown", quoted)
    if not rest:
        return Part(name, "variable", quoted)
    if rest[:2] in (":-", ":=") or rest[:1] in ("-", "="):
        return Part(name, "variable", quoted, default=rest[2:] if rest[0] == ":" else rest[1:])
    return Part(whole, "unknown", quoted)
