# SPDX-License-Identifier: Apache-2.0
"""What a launch script writes: hydra overrides and exported variables of the command that starts verl.

The script is read, never run. A value that only a shell can know stays as text and is named as unresolved; so is one
that depends on a branch.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from sentinel.errors import SettingsError
from sentinel.facts.secrets import clean_value
from sentinel.sources.shell_values import ASSIGNMENT, Value, Variables, assign_array, assignment
from sentinel.sources.shell_words import Array, Script, Statement, Word

_ENTRY = re.compile(r"(?:.*[./])?(?:main_ppo|main_[a-z]+|fit|[a-z]+_main)(?:_\w+)?(?:\.py)?")
_MODULE = re.compile(r"(?:verl|recipe|recipes)(?:\.\w+)+|(?:.*/)?(?:verl|recipe)/.*\.py")
_STARTS = re.compile(r"main_ppo|\bverl\.trainer\b")
_OVERRIDE = re.compile(r"(?P<sign>\+{0,2})(?P<key>[A-Za-z_][\w./@-]*)=(?P<value>.*)", re.DOTALL)
_DELETION = re.compile(r"~(?P<key>[A-Za-z_][\w./@-]*)(?:=.*)?")
_OPENING = ("if", "case", "for", "while", "until", "select")
_CLOSING = ("fi", "esac", "done")
_RESERVED = {"then", "else", "elif", "do", "{", "}", "!", "time", "function", "in", *_OPENING, *_CLOSING}
_CARRIERS = {"env", "nohup", "exec", "command", "sudo", "timeout", "stdbuf", "numactl", "taskset"}
DELETED = "<deleted>"


@dataclass(frozen=True, kw_only=True, slots=True)
class Launch:
    """What a script starts."""

    overrides: dict[str, object]
    """Dotted key -> value."""
    written: tuple[str, ...]
    """The overrides as they are given to hydra, with `+` and `++`."""
    exports: dict[str, str]
    unresolved: tuple[str, ...]
    """Keys whose value the script takes from elsewhere."""
    config_name: str = ""
    line: int = 0
    """Of the command, from 1."""
    notes: tuple[str, ...] = ()


class NoLaunchError(Exception):
    """The script starts no verl, or more than one; the text says which."""


@dataclass
class _Shell(Variables):
    """The state of reading a launch script."""

    notes: list[str] = field(default_factory=list)
    found: list[Launch] = field(default_factory=list)


def read_launch(path: Path) -> Launch:
    """Return what a launch script starts.

    Raises:
        SettingsError: it cannot be read.
        NoLaunchError: it starts no verl, or several.
    """
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise SettingsError(f"{path}: cannot be read: {error.strerror or error}") from error
    return parse_launch(text)


def parse_launch(text: str) -> Launch:
    """Return what the text of a launch script starts.

    Raises:
        NoLaunchError: as `read_launch`.
    """
    shell = _Shell()
    _walk(Script(text), shell)
    if not shell.found:
        raise NoLaunchError("the script starts no verl (no command with verl.trainer or main_ppo in it)")
    first = shell.found[0]
    if any(other.overrides != first.overrides for other in shell.found[1:]):
        raise NoLaunchError(
            f"the script starts verl {len(shell.found)} times with other settings; give one of them as a script of its own"
        )
    return first


def _walk(script: Script, shell: _Shell) -> None:
    for statement in script.statements:
        _statement(statement, shell)
    documents = [statement.document for statement in script.statements if _STARTS.search(statement.document)]
    if documents and not shell.found:
        # The script writes the one that is started, or sends it to another shell.
        shell.notes.append("the command stands in a here-document")
        for document in documents:
            _walk(Script(document), shell)


def _statement(statement: Statement, shell: _Shell) -> None:
    words = list(statement.words)
    while words and isinstance(words[0], Word) and words[0].bare in _RESERVED:
        bare = words.pop(0).bare  # type: ignore[union-attr]
        shell.depth += (bare in _OPENING) - (bare in _CLOSING)
        if bare in ("for", "case", "select"):
            return
    prefix: dict[str, Value] = {}
    while words:
        first = words[0]
        if isinstance(first, Array):
            assign_array(first, shell)
        elif (named := assignment(first, shell)) is not None:
            prefix[named[0]] = named[1]
        else:
            break
        words.pop(0)
    rest = [word for word in words if isinstance(word, Word)]
    if not words:
        for name, value in prefix.items():
            shell.assign(name, value)
    elif rest and rest[0].bare in ("export", "declare", "typeset", "readonly", "local"):
        _export(words[1:], shell, exports=rest[0].bare == "export" or any(word.bare == "-x" for word in rest))
    elif rest and rest[0].bare == "unset":
        for word in rest[1:]:
            shell.variables.pop(word.bare, None)
            shell.exported.pop(word.bare, None)
    elif rest:
        _command(rest, prefix, statement.line, shell)


def _export(words: list[Word | Array], shell: _Shell, *, exports: bool) -> None:
    for word in words:
        if isinstance(word, Array):
            assign_array(word, shell)
            continue
        named = assignment(word, shell)
        name = named[0] if named else word.bare
        if named:
            shell.assign(*named)
        if exports and name and not name.startswith("-") and name in shell.variables:
            shell.exported[name] = shell.variables[name]


def _command(words: list[Word], prefix: dict[str, Value], line: int, shell: _Shell) -> None:
    if words[0].bare in ("source", "."):
        shell.notes.append(f"reads {shell.word(words[1]).fields[0]}, which was not followed" if len(words) > 1 else "")
        return
    fields: list[tuple[str, bool]] = []
    for word in words:
        texts, certain = shell.fields(word)
        fields += [(text, certain) for text in texts]
    start = _entry(fields)
    if start is None or words[0].bare in ("echo", "printf", "cat", "ls", "grep", "sed", "tee", "[", "[["):
        return
    exports = {**shell.exported, **prefix, **dict(_carried(fields[:start]))}
    shell.found.append(_launch(fields[start + 1 :], exports, line, shell))


def _entry(fields: list[tuple[str, bool]]) -> int | None:
    """Return the place of the module or script that is started."""
    for place, (text, _) in enumerate(fields):
        module = place and fields[place - 1][0] == "-m" and _MODULE.fullmatch(text)
        if (
            module
            or (_MODULE.fullmatch(text) and _ENTRY.fullmatch(text))
            or re.fullmatch(r"(?:.*[./])?main_ppo\w*(?:\.py)?", text)
        ):
            return place
    return None


def _carried(fields: list[tuple[str, bool]]) -> Iterator[tuple[str, Value]]:
    """Yield the variables that words before the module carry: `env A=1`, Ray's runtime environment."""
    for place, (text, certain) in enumerate(fields):
        match = ASSIGNMENT.match(text)
        if match and not text.startswith("-") and any(f in _CARRIERS for f, _ in fields[:place]):
            yield match.group("name"), Value([text[match.end() :]], certain)
        plain: Any = None
        if text.startswith("--runtime-env-json"):
            given = text.partition("=")[2] or (fields[place + 1][0] if place + 1 < len(fields) else "")
            try:
                plain = json.loads(given)
            except ValueError:
                continue
        if isinstance(plain, dict) and isinstance(plain.get("env_vars"), dict):
            for name, value in plain["env_vars"].items():
                yield str(name), Value([str(value)])


def _launch(fields: list[tuple[str, bool]], exports: dict[str, Value], line: int, shell: _Shell) -> Launch:
    overrides: dict[str, object] = {}
    written: list[str] = []
    unresolved: list[str] = []
    notes = [note for note in shell.notes if note]
    config_name = ""
    for place, (text, certain) in enumerate(fields):
        if text in ("$@", "$*"):
            notes.append("arguments that are given to the script are not known")
        elif text.startswith("--config-name"):
            config_name = text.partition("=")[2] or (fields[place + 1][0] if place + 1 < len(fields) else "")
        elif match := _DELETION.fullmatch(text):
            overrides[match.group("key")] = DELETED
            written.append(text)
        elif match := _OVERRIDE.fullmatch(text):
            key = match.group("key").replace("/", ".").partition("@")[0]
            if not certain:
                unresolved.append(key)
            elif key in unresolved:
                unresolved.remove(key)
            value = parse_value(match.group("value"))
            overrides[key] = clean_value(key, value) if isinstance(value, str) else value
            written.append(text)
            _environment_override(key, match.group("value"), exports, certain=certain)
    return Launch(
        overrides=overrides,
        written=tuple(written),
        exports={
            name: value.fields[0] if value.fields else "" for name, value in sorted(exports.items()) if value.certain
        },
        unresolved=tuple(dict.fromkeys(unresolved)),
        config_name=config_name,
        line=line,
        notes=tuple(dict.fromkeys(notes)),
    )


def _environment_override(key: str, text: str, exports: dict[str, Value], *, certain: bool) -> None:
    before, _, name = key.partition("runtime_env.env_vars.")
    if name and before.startswith("ray_kwargs"):
        exports[name] = Value([text.strip("'\"")], certain)


def parse_value(text: str) -> object:
    """Return the value of an override's text, as hydra would read it."""
    stripped = text.strip()
    word = stripped.lower()
    if word in ("null", "none", ""):
        return None
    if word in ("true", "false"):
        return word == "true"
    number = _number(stripped)
    if number is not None:
        return number
    if stripped[0] in "[{'\"":
        try:
            value = yaml.safe_load(
                re.sub(r"(?<=[\w'\"]):(?=[^\s/])", ": ", stripped) if stripped[0] == "{" else stripped
            )
        except (yaml.YAMLError, ValueError, RecursionError):
            return text
        return _numbers(value)
    return text


def _numbers(value: object) -> object:
    """Return a value of YAML with `1e-6` as a number: YAML 1.1 takes it for text."""
    if isinstance(value, list):
        return [_numbers(item) for item in value]
    if isinstance(value, dict):
        return {str(key): _numbers(item) for key, item in value.items()}
    if isinstance(value, str) and re.fullmatch(r"[+-]?\d+(?:\.\d*)?[eE][+-]?\d+", value):
        return float(value)
    return value


def _number(text: str) -> int | float | None:
    """Return a number; `1_000` is text to hydra."""
    if "_" in text:
        return None
    try:
        return int(text)
    except ValueError:
        pass
    try:
        return float(text)
    except ValueError:
        return None
