# SPDX-License-Identifier: Apache-2.0
"""Sentinel's own verbs, called as a user would: `sentinel ...` as a command, in the environment of a cluster."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from sentinel.errors import SentinelError

ENTRY = "import sys; from sentinel.cli import main; sys.exit(main())"
TIMEOUT_SECONDS = 120.0


class VerbError(SentinelError):
    """A verb failed where the demo needs it."""


def call(words: Sequence[str], environment: Mapping[str, str], *, fine: Sequence[int] = (0,)) -> str:
    """Run `sentinel WORDS...` and return what it printed.

    Raises:
        VerbError: another exit code than `fine`, or no end within two minutes; the message is the verb's own.
    """
    try:
        done = subprocess.run(
            [sys.executable, "-c", ENTRY, *words],
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=TIMEOUT_SECONDS,
        )
    except subprocess.TimeoutExpired as error:
        raise VerbError(f"`sentinel {' '.join(words)}` did not end within {TIMEOUT_SECONDS:.0f} s") from error
    if done.returncode not in fine:
        said = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise VerbError(f"`sentinel {' '.join(words)}` ended with code {done.returncode}: {said}")
    return done.stdout


def ask(words: Sequence[str], environment: Mapping[str, str], *, fine: Sequence[int] = (0, 1)) -> Any:
    """Run `sentinel WORDS... --json` and return the document.

    Raises:
        VerbError: as `call`, or what was printed is no JSON.
    """
    text = call([*words, "--json"], environment, fine=fine)
    try:
        return json.loads(text)
    except ValueError as error:
        raise VerbError(f"`sentinel {' '.join(words)} --json` printed no JSON: {error}") from error
