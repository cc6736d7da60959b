# SPDX-License-Identifier: Apache-2.0
"""Variables and arrays of a shell script as far as it was read, and what words become with them."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from sentinel.sources.shell_words import Array, Part, Word

ASSIGNMENT = re.compile(r"(?P<name>[A-Za-z_]\w*)(?P<adds>\+?)=")
_MOST_FIELDS = 20_000


@dataclass
class Value:
    """The fields of a variable, and whether it has them for certain."""

    fields: list[str]
    certain: bool = True


@dataclass
class Variables:
    """The variables of a script as far as it was read."""

    variables: dict[str, Value] = field(default_factory=dict)
    exported: dict[str, Value] = field(default_factory=dict)
    depth: int = 0
    """Of branches and loops: what is assigned inside may not be."""

    def assign(self, name: str, value: Value) -> None:
        """Set a variable; inside a branch its value is not certain."""
        before = self.variables.get(name)
        if self.depth and (before is None or before.fields != value.fields):
            value = Value(value.fields, certain=False)
        self.variables[name] = value
        if name in self.exported:
            self.exported[name] = value

    def fields(self, word: Word) -> tuple[list[str], bool]:
        """Return what a word becomes, and whether that is certain."""
        done: list[str] = []
        current: str | None = None
        certain = True
        for part in word.parts:
            texts, sure = self._part(part)
            certain = certain and sure
            for number, text in enumerate(texts):
                if number and current is not None:
                    done.append(current)
                    current = None
                current = (current or "") + text
                if len(done) > _MOST_FIELDS:
                    return done, False
            if not texts and part.kind == "literal":
                current = current or ""
        return ([*done, current] if current is not None else done), certain

    def _part(self, part: Part) -> tuple[list[str], bool]:
        if part.kind == "literal":
            return [part.text], True
        if part.kind == "unknown":
            return [part.text], False
        known = self.variables.get(part.text)
        if known is None and part.default is not None:
            # The caller's environment may set it: the default is likely, not certain.
            return [part.default], "$" not in part.default and "`" not in part.default
        if known is None:
            return [f"${part.text}"], False
        if part.kind == "array":
            return list(known.fields), known.certain
        text = known.fields[0] if known.fields else ""
        return ([text] if part.quoted else text.split()), known.certain

    def word(self, word: Word) -> Value:
        """Return what a word becomes where it is not split."""
        fields, certain = self.fields(word)
        return Value([" ".join(fields)], certain)


def assign_array(array: Array, shell: Variables) -> None:
    """Set or extend an array."""
    fields: list[str] = []
    certain = True
    for word in array.words:
        more, sure = shell.fields(word)
        fields += more
        certain = certain and sure
    before = shell.variables.get(array.name)
    if array.adds and before is not None:
        fields, certain = [*before.fields, *fields], certain and before.certain
        shell.variables[array.name] = Value(fields, certain and not shell.depth)
        return
    shell.assign(array.name, Value(fields, certain))


def assignment(word: Word, shell: Variables) -> tuple[str, Value] | None:
    """Return name and value of `NAME=value`; None where the word is none."""
    if not word.parts or word.parts[0].kind != "literal" or word.parts[0].quoted:
        return None
    match = ASSIGNMENT.match(word.parts[0].text)
    if match is None:
        return None
    rest = Word([Part(word.parts[0].text[match.end() :]), *word.parts[1:]])
    value = shell.word(rest)
    name = match.group("name")
    if match.group("adds"):
        before = shell.variables.get(name, Value([""]))
        value = Value([(before.fields or [""])[0] + value.fields[0]], value.certain and before.certain)
    return name, value
