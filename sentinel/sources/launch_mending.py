# SPDX-License-Identifier: Apache-2.0
"""A launch script as it would be with other overrides and exports. The file itself is never written."""

from __future__ import annotations

import re

from sentinel.sources.launch_script import parse_launch

_STARTS = re.compile(r"\S*(?:main_ppo|verl\.|recipe)\S*")


def mended(text: str, overrides: tuple[str, ...], exports: tuple[str, ...]) -> str:
    """Return a launch script's text with these overrides and export lines in it.

    A value that stands there literally is replaced; the rest is added behind the module that is started, and exports
    before the command.

    Raises:
        NoLaunchError: as `read_launch`.
    """
    line = parse_launch(text).line
    lines = text.splitlines(keepends=True)
    fresh = []
    for one in overrides:
        key = re.escape(one.lstrip("+").partition("=")[0])
        place = re.compile(rf"(?<![\w.+])\+{{0,2}}{key}=(?:'[^']*'|\"[^\"]*\"|[^\s'\"\\)]+)")
        hits = [number for number, old in enumerate(lines) if place.search(old) and not old.lstrip().startswith("#")]
        for number in hits:
            lines[number] = place.sub(one.replace("\\", r"\\"), lines[number])
        fresh += [] if hits else [one]
    module = next(
        (number for number in range(line - 1, len(lines)) if re.search(r"main_ppo|verl\.|recipe", lines[number])),
        line - 1,
    )
    if fresh and lines[module].rstrip().endswith("\\"):
        indent = re.match(r"\s*", lines[module + 1]).group() if module + 1 < len(lines) else "    "  # type: ignore[union-attr]
        lines[module + 1 : module + 1] = [f"{indent or '    '}{_quoted(one)} \\\n" for one in fresh]
    elif fresh:
        words = " ".join(map(_quoted, fresh))
        lines[module] = re.sub(
            r"(\S*(?:main_ppo|verl\.|recipe)\S*)", lambda found: f"{found.group()} {words}", lines[module], count=1
        )
    lines[line - 1 : line - 1] = [f"{one}\n" for one in exports]
    return "".join(lines)


def _quoted(override: str) -> str:
    return f'"{override}"' if re.search(r"[\[\]{}'*?<>|&; ]", override) else override
