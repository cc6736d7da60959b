# SPDX-License-Identifier: Apache-2.0
"""The configuration that verl prints at the start of a run, out of a console log.

verl pretty-prints the resolved configuration as a Python mapping over hundreds of lines. Ray puts its prefix before
each, and lines of other processes may stand between. A block that does not end is told as cut; two blocks that differ
(a restart with other settings) are not chosen between.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from sentinel.errors import UnreadableLog

_COLOUR = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_PREFIX = re.compile(r"^(\([\w.:<>, -]*pid=\d+[^)]*\)) ?")
_FIRST = re.compile(
    r"^\{'(?:actor_rollout_ref|algorithm|critic|actor|async_training|custom_reward_function|data|trainer)'"
)
_MOST_LINES = 20_000
_LOADED = re.compile(r"Load generate result at step[ :]*(\d+)|Injected \d+ cached trajectories.*?step[ =:]*(\d+)")


class BrokenConfigError(Exception):
    """The log shows no configuration that could be used; the text says why."""


def printed_config(path: Path) -> dict[str, Any]:
    """Return the configuration that a log shows, nested as it was printed.

    Raises:
        UnreadableLog: the file cannot be read.
        BrokenConfigError: there is no block, it was cut, or there are two that differ.
    """
    found: list[dict[str, Any]] = []
    broken = ""
    try:
        with path.open(encoding="utf-8", errors="replace") as lines:
            for block, whole in blocks(lines):
                value = _literal(block) if whole else None
                if isinstance(value, dict):
                    found.append(value)
                else:
                    broken = "the log ends before" if not whole else "something stands in"
    except OSError as error:
        raise UnreadableLog(path, "unreadable", error.strerror or str(error)) from error
    if not found:
        raise BrokenConfigError(
            f"{broken} its configuration block's end" if broken else "the log shows no configuration block"
        )
    if any(other != found[0] for other in found[1:]):
        raise BrokenConfigError(f"the log holds {len(found)} configuration blocks that differ: give the log of one run")
    return found[-1]


def blocks(lines: Iterable[str]) -> Iterator[tuple[str, bool]]:
    """Yield each configuration block of a log, without prefixes, and whether it ended."""
    block: list[str] = []
    prefix = ""
    for line in lines:
        own, text = split_prefix(line)
        if _FIRST.match(text):
            if block:
                yield "\n".join(block), False
            block, prefix = [text], own
        elif block and own == prefix:
            block.append(text)
        if block and own == prefix and text.rstrip().endswith("}") and _balanced("\n".join(block)):
            yield "\n".join(block), True
            block = []
        if len(block) > _MOST_LINES:
            yield "\n".join(block), False
            block = []
    if block:
        yield "\n".join(block), False


def split_prefix(line: str) -> tuple[str, str]:
    """Return Ray's prefix of a line and the text behind it."""
    text = _COLOUR.sub("", line.rstrip("\r\n"))
    match = _PREFIX.match(text)
    return (match.group(1), text[match.end() :]) if match else ("", text)


def replayed_steps(path: Path) -> tuple[int, ...]:
    """Return the steps whose rollouts a log says were loaded rather than generated.

    Raises:
        UnreadableLog: the file cannot be read.
    """
    try:
        with path.open(encoding="utf-8", errors="replace") as lines:
            found = {int(match.group(1) or match.group(2)) for line in lines for match in _LOADED.finditer(line)}
    except OSError as error:
        raise UnreadableLog(path, "unreadable", error.strerror or str(error)) from error
    return tuple(sorted(found))


def _balanced(text: str) -> bool:
    """Return whether every bracket outside strings is closed."""
    depth = 0
    quote = ""
    escaped = False
    for character in text:
        if quote:
            if escaped:
                escaped = False
            elif character == "\\":
                escaped = True
            elif character == quote:
                quote = ""
        elif character in "'\"":
            quote = character
        elif character in "{[(":
            depth += 1
        elif character in "}])":
            depth -= 1
    return depth == 0 and not quote


def _literal(text: str) -> object:
    """Return the value of a printed mapping; None where something else than plain values stands in it."""
    try:
        return _value(ast.parse(text.strip(), mode="eval").body)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _value(node: ast.expr) -> object:
    if isinstance(node, ast.Name) and node.id in ("nan", "inf"):
        return float(node.id)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        inner = _value(node.operand)
        if isinstance(inner, (int, float)):
            return -inner
    if isinstance(node, ast.Dict):
        return {
            str(_value(key)): _value(value)
            for key, value in zip(node.keys, node.values, strict=True)
            if key is not None
        }
    if isinstance(node, (ast.List, ast.Tuple)):
        return [_value(item) for item in node.elts]
    return ast.literal_eval(node)
