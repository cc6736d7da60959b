# SPDX-License-Identifier: Apache-2.0
"""What each step was asked and answered, as hashes, from the rollout text that verl writes (`<step>.jsonl`)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path

from sentinel.errors import UnreadableLog


def order_facts(folder: Path) -> dict[str, dict[str, object]]:
    """Return `{step: {"prompts": hash, "texts": hash, "rows": int}}` of a folder of rollout text.

    Rows of one step come in another order from run to run (V1 trainer), so the hashes are of sorted rows.

    Raises:
        UnreadableLog: there is no such folder, no rollout text in it, or a file is damaged.
    """
    paths = [path for path in folder.glob("*.jsonl") if path.stem.isdecimal()] if folder.is_dir() else []
    if not paths:
        why = "holds no rollout text <step>.jsonl" if folder.is_dir() else "no such folder"
        raise UnreadableLog(folder, "unreadable", why)
    return {path.stem: _step(path) for path in sorted(paths, key=lambda path: int(path.stem))}


def _step(path: Path) -> dict[str, object]:
    prompts, texts = [], []
    try:
        with path.open(encoding="utf-8", errors="replace") as lines:
            for line in lines:
                if line.strip():
                    row = json.loads(line)
                    prompts.append(str(row.get("input")))
                    texts.append(f"{row.get('input')}\0{row.get('output')}")
    except (OSError, ValueError, AttributeError) as error:
        raise UnreadableLog(path, "unreadable", f"is no rollout text: {error}") from error
    return {"prompts": _hash(prompts), "texts": _hash(texts), "rows": len(prompts)}


def _hash(rows: Iterable[str]) -> str:
    digest = hashlib.sha256()
    for row in sorted(rows):
        digest.update(hashlib.sha256(row.encode("utf-8", "surrogatepass")).digest())
    return digest.hexdigest()[:32]
