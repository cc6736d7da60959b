# SPDX-License-Identifier: Apache-2.0
"""The files of a model: their hashes, the content of its configuration, the dtype of its tensors. No torch needed.

Files are hashed side by side (hashing frees the interpreter lock). A hash is kept by device, inode, size and time of
the file, so that a second look reads nothing but names. The quick mode hashes a sample of each large file, and says so.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import struct
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sentinel.errors import BaselineError
from sentinel.facts.secrets import clean_plain

if TYPE_CHECKING:
    from collections.abc import Callable

_CHUNK = 1 << 20
# More threads than this only make disks seek.
_MOST_THREADS = 16
_SAMPLE = 1 << 16
_SAMPLES = 64
_DOCUMENTS = ("config.json", "generation_config.json")
_LARGEST_DOCUMENT = 1 << 20
_LARGEST_HEADER = 1 << 27
_MOST_CACHED = 20_000


class HashCache:
    """Hashes of files that have not changed since; a cache that cannot be read or written is none.

    Args:
        path: the file that keeps it; None for none.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._known: dict[str, str] = {}
        self._new = False
        if path is not None:
            with contextlib.suppress(OSError, ValueError, AttributeError):
                plain = json.loads(path.read_text(encoding="utf-8"))
                self._known = {str(key): str(value) for key, value in plain.items()}

    def get(self, status: os.stat_result) -> str | None:
        """Return the hash of a file with this status, if it is known."""
        return self._known.get(_identity(status))

    def put(self, status: os.stat_result, digest: str) -> None:
        """Remember a hash; files that changed within the last seconds could change again unseen."""
        self._known[_identity(status)] = digest
        self._new = True

    def save(self) -> None:
        """Write what is new, at once and whole."""
        if self._path is None or not self._new:
            return
        kept = dict(list(self._known.items())[-_MOST_CACHED:])
        with contextlib.suppress(OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(
                "w", dir=self._path.parent, prefix=".hashes", delete=False, encoding="utf-8"
            ) as file:
                json.dump(kept, file)
            Path(file.name).replace(self._path)


def default_cache() -> Path:
    """Return where hashes are kept."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "sentinel" / "hashes.json"


def model_fingerprint(folder: Path, said: Callable[[str], None] = lambda _text: None) -> dict[str, object]:
    """Return the facts of a model for a baseline, which must hold them all.

    Raises:
        BaselineError: there is nothing to hash, or a file cannot be read.
    """
    facts = model_facts(folder, said=said)
    files = facts["files"]
    assert isinstance(files, dict)
    for name, entry in files.items():
        if "unreadable" in entry:
            raise BaselineError(folder / name, f"cannot be read: {entry['unreadable']}")
    return facts


def model_facts(
    folder: Path,
    *,
    quick: bool = False,
    cache: Path | None = None,
    said: Callable[[str], None] = lambda _text: None,
) -> dict[str, object]:
    """Hash the files of a model: weights, tokenizer, configuration.

    Args:
        folder: the model's folder, or one file.
        quick: hash a sample of each file larger than that sample.
        cache: file of known hashes; None for none.
        said: is told what is being done.

    Returns:
        `{"files": {path below the folder: {"bytes", "sha256"} | {"bytes", "sampled"} | {"unreadable"}},
        "documents": {"config.json": {...}}, "tensors": {"count", "dtypes": {name: count}, "index": hash}}`; what is not
        there is absent.

    Raises:
        BaselineError: there is no such folder, or nothing in it.
    """
    paths, root = _model_files(folder)
    known = HashCache(cache)
    done = 0

    def looked_at(path: Path) -> tuple[str, dict[str, object]]:
        nonlocal done
        entry = _entry(path, known, quick=quick)
        done += 1
        said(f"hashing the model, {done} of {len(paths)} files")
        return path.relative_to(root).as_posix(), entry

    threads = min(_MOST_THREADS, max(2, os.cpu_count() or 2))
    # Largest first: the last thread should not be left alone with a whole shard.
    order = sorted(paths, key=_size, reverse=True)
    with ThreadPoolExecutor(threads) as pool:
        entries = dict(pool.map(looked_at, order))
    known.save()
    facts: dict[str, object] = {"files": dict(sorted(entries.items()))}
    documents = {name: content for name in _DOCUMENTS if (content := _document(root / name)) is not None}
    tensors = tensor_facts([path for path in paths if path.suffix == ".safetensors"])
    return facts | ({"documents": documents} if documents else {}) | ({"tensors": tensors} if tensors else {})


def _model_files(folder: Path) -> tuple[list[Path], Path]:
    if folder.is_file():
        return [folder], folder.parent
    if not folder.is_dir():
        hint = ""
        if not folder.is_absolute() and str(folder).count("/") == 1:
            hint = " (a model id is not looked up: give the folder that it was downloaded to)"
        raise BaselineError(folder, f"no such model folder{hint}")
    found = sorted(folder.rglob("*"))
    paths = [p for p in found if (p.is_file() or p.is_symlink()) and not _is_hidden(p.relative_to(folder).parts)]
    paths = [p for p in paths if not p.is_dir()]
    if not paths:
        raise BaselineError(folder, "holds no model files")
    return paths, folder


def _is_hidden(parts: tuple[str, ...]) -> bool:
    return any(part.startswith(".") for part in parts)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _entry(path: Path, known: HashCache, *, quick: bool) -> dict[str, object]:
    try:
        status = path.stat()
        digest = known.get(status)
        if digest is None and quick and status.st_size > _SAMPLE * _SAMPLES:
            return {"bytes": status.st_size, "sampled": _sample(path, status.st_size)}
        if digest is None:
            digest = hash_file(path)
            if _identity(path.stat()) != _identity(status):
                return {"unreadable": "it changed while it was read"}
            known.put(status, digest)
    except FileNotFoundError:
        return {"unreadable": "a link to a file that is not there" if path.is_symlink() else "it is gone"}
    except OSError as error:
        return {"unreadable": error.strerror or str(error)}
    return {"bytes": status.st_size, "sha256": digest}


def hash_file(path: Path) -> str:
    """Return the SHA-256 of a file's content."""
    digest = hashlib.sha256()
    buffer = bytearray(_CHUNK)
    view = memoryview(buffer)
    with path.open("rb", buffering=0) as stream:
        while count := stream.readinto(buffer):
            digest.update(view[:count])
    return digest.hexdigest()


def _sample(path: Path, size: int) -> str:
    """Return the hash of equally spaced pieces of a file, its first and last among them."""
    digest = hashlib.sha256(str(size).encode())
    with path.open("rb", buffering=0) as stream:
        for piece in range(_SAMPLES):
            stream.seek((size - _SAMPLE) * piece // (_SAMPLES - 1))
            digest.update(stream.read(_SAMPLE) or b"")
    return digest.hexdigest()


def _identity(status: os.stat_result) -> str:
    return f"{status.st_dev}:{status.st_ino}:{status.st_size}:{status.st_mtime_ns}"


def _document(path: Path) -> dict[str, Any] | None:
    """Return the content of a configuration file; None where it is not there or is no mapping."""
    try:
        if path.stat().st_size > _LARGEST_DOCUMENT:
            return None
        plain = clean_plain(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, RecursionError):
        return None
    return plain if isinstance(plain, dict) else None


def tensor_facts(paths: list[Path]) -> dict[str, object]:
    """Return how many tensors of which dtype the safetensors files hold, and a hash of names, dtypes and shapes."""
    lines: list[str] = []
    dtypes: Counter[str] = Counter()
    for path in paths:
        header = _safetensors_header(path)
        for name, entry in header.items():
            if name != "__metadata__" and isinstance(entry, dict):
                dtypes[str(entry.get("dtype"))] += 1
                lines.append(f"{name} {entry.get('dtype')} {entry.get('shape')}")
    if not lines:
        return {}
    index = hashlib.sha256("\n".join(sorted(lines)).encode()).hexdigest()
    return {"count": len(lines), "dtypes": dict(sorted(dtypes.items())), "index": index}


def _safetensors_header(path: Path) -> dict[str, Any]:
    """Return the header of a safetensors file: eight bytes of length, then JSON; {} where it is none."""
    with contextlib.suppress(OSError, ValueError, struct.error, RecursionError), path.open("rb") as stream:
        (length,) = struct.unpack("<Q", stream.read(8))
        if length <= _LARGEST_HEADER:
            header = json.loads(stream.read(length))
            return header if isinstance(header, dict) else {}
    return {}
