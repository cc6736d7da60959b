# SPDX-License-Identifier: Apache-2.0
"""What a baseline remembers of its model and configuration: hashes of the weight files, and the settings' values.

Values that look like credentials are cut out here, before anything is written.
"""

from __future__ import annotations

import hashlib
import math
import re
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import yaml

from sentinel.errors import BaselineError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

_CHUNK = 4 << 20
# Hashing frees the interpreter lock; more threads than this only make disks seek.
_THREADS = 4
_SECRET = re.compile(
    r"(^|_|-|\.)(token|secret|password|passwd|api_?key|access_?key|secret_?key|credentials?)$", re.IGNORECASE
)
_CUT_OUT = "<cut out>"


def model_fingerprint(folder: Path, said: Callable[[str], None] = lambda _text: None) -> dict[str, object]:
    """Hash the files of a model: weights, tokenizer, configuration.

    Args:
        folder: the model's folder, or one file.
        said: is told what is being done.

    Returns:
        `{"files": {path below the folder: {"bytes", "sha256"}}}`, by path.

    Raises:
        BaselineError: there is nothing to hash, or a file cannot be read.
    """
    if folder.is_file():
        paths, root = [folder], folder.parent
    else:
        root = folder
        paths = [p for p in sorted(folder.rglob("*")) if p.is_file() and not _is_hidden(p.relative_to(folder).parts)]
    if not paths:
        raise BaselineError(folder, "holds no model files" if folder.is_dir() else "no such model folder")
    done = 0

    def hashed(path: Path) -> tuple[str, dict[str, object]]:
        nonlocal done
        entry = {"bytes": path.stat().st_size, "sha256": _hash(path)}
        done += 1
        said(f"hashing the model, {done} of {len(paths)} files")
        return path.relative_to(root).as_posix(), entry

    try:
        with ThreadPoolExecutor(_THREADS) as pool:
            return {"files": dict(pool.map(hashed, paths))}
    except OSError as error:
        raise BaselineError(error.filename or folder, f"cannot be read: {error.strerror or error}") from error


def config_fingerprint(path: Path) -> dict[str, object]:
    """Return the values of a YAML or JSON configuration, or the hash of another kind of file.

    Returns:
        `{"values": {...}}`, or `{"sha256": ...}` for a launch script.

    Raises:
        BaselineError: it cannot be read.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise BaselineError(path, f"cannot be read: {error.strerror or error}") from error
    try:
        values = yaml.safe_load(content)
    except (yaml.YAMLError, RecursionError, ValueError):
        values = None
    if isinstance(values, dict):
        return {"values": _plain(values)}
    return {"sha256": hashlib.sha256(content).hexdigest()}


def facts_fingerprint(facts: Mapping[str, object]) -> dict[str, object]:
    """Return what a run said of itself, without what says nothing about the recipe (process and host)."""
    kept = {key: value for key, value in facts.items() if key not in {"pid", "host", "rollout_data_dir"}}
    plain = _plain(kept)
    assert isinstance(plain, dict)
    return plain


def flatten(value: object, prefix: str = "") -> dict[str, object]:
    """Return nested mappings as one level of dotted keys."""
    if not isinstance(value, dict) or not value:
        return {prefix: value} if prefix else {}
    flat: dict[str, object] = {}
    for key, inner in value.items():
        flat |= flatten(inner, f"{prefix}.{key}" if prefix else str(key))
    return flat


def _is_hidden(parts: tuple[str, ...]) -> bool:
    return any(part.startswith(".") for part in parts)


def _hash(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while chunk := stream.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def _plain(value: object, key: str = "") -> object:
    """Return a value as JSON can hold it, without credentials."""
    if isinstance(value, dict):
        return {str(name): _plain(inner, str(name)) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(inner, key) for inner in value]
    if isinstance(value, str) and value and _SECRET.search(key):
        return _CUT_OUT
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value if value is None or isinstance(value, (str, int, float, bool)) else str(value)
