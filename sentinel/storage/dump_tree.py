# SPDX-License-Identifier: Apache-2.0
"""Golden dumps on disk: `<root>/step_<N>/<stage>/step0/rank<r>/{dump,construct,stack}.json`, found and checked.

Only the statistics travel in a bundle; tensors that a dump may hold beside them (`dump_tensor_data/*.pt`, pickles)
stay where they are.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from sentinel.errors import BaselineError
from sentinel.records import GoldenDump

if TYPE_CHECKING:
    from pathlib import Path

DUMP_FILE = "dump.json"
FILES = (DUMP_FILE, "construct.json", "stack.json")
_STEP = re.compile(r"step_(\d{1,12})")
_RANK = re.compile(r"rank(\d{1,6})")
_STAGE = re.compile(r"[A-Za-z0-9_]{1,64}")


def stage_folder(step: int, stage: str) -> str:
    """Return the folder of a dump below its root."""
    return f"step_{step}/{stage}"


def rank_folder(rank: int) -> str:
    """Return the folder of a rank below its stage folder."""
    return f"step0/rank{rank}"


def find_dumps(root: Path) -> tuple[GoldenDump, ...]:
    """Return every dump below a root, by step and stage; their contents are not looked at."""
    found = []
    for folder in root.glob("step_*/*"):
        step = _STEP.fullmatch(folder.parent.name)
        if step is None or not _STAGE.fullmatch(folder.name):
            continue
        ranks = sorted(
            int(match[1])
            for rank in folder.glob("step0/rank*")
            if (match := _RANK.fullmatch(rank.name)) and (rank / DUMP_FILE).is_file()
        )
        if ranks:
            found.append(GoldenDump(step=int(step[1]), stage=folder.name, ranks=tuple(ranks), path=str(folder)))
    return tuple(sorted(found, key=lambda dump: (dump.step, dump.stage)))


def check_dump_file(path: Path) -> None:
    """Refuse a dump that was never finished or is no dump.

    Raises:
        BaselineError: says what is wrong with it.
    """
    try:
        content = json.loads(path.read_bytes())
    except OSError as error:
        raise BaselineError(path, f"cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise BaselineError(path, "is no JSON: the dump was not finished; dump that step again") from error
    if not isinstance(content, dict) or not isinstance(content.get("data"), dict) or not content["data"]:
        raise BaselineError(path, "holds no statistics: the dump was not finished; dump that step again or remove it")
