# SPDX-License-Identifier: Apache-2.0
"""A sealed zip: members with fixed times and hashes, closed by a hash over the whole file.

The seal is the archive's comment, `sentinel-sha256:` and 64 hex digits over every byte before the digits. Member hashes
find a changed member and name it; the seal also finds a changed byte of the zip's own tables, which readers of zip
files ignore. The same members give the same bytes. Archives come from strangers: sizes, compression ratios and names
are checked before anything is unpacked, and nothing is unpickled or executed.
"""

from __future__ import annotations

import hashlib
import os
import re
import struct
import zipfile
import zlib
from typing import TYPE_CHECKING, BinaryIO

from sentinel.errors import BaselineError
from sentinel.storage.manifest import Part

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from typing_extensions import Self

SEAL = b"sentinel-sha256:"
_DIGITS = 64
_CHUNK = 1 << 20
_EPOCH = (1980, 1, 1, 0, 0, 0)  # the earliest time that a zip can hold
_SAFE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+=@-]*(?:/[A-Za-z0-9_][A-Za-z0-9_.+=@-]*)*")

# Far above what was seen (a dump of repeated layers packs 30 to 1, rollout text 5 to 1), far below a bomb's 1000 to 1.
MAX_RATIO = 200
RATIO_FREE_BYTES = 16 << 20
MAX_TOTAL_BYTES = 256 << 30
MAX_MEMBERS = 200_000
_DAMAGE = (zipfile.BadZipFile, zlib.error, EOFError, ValueError, NotImplementedError, RuntimeError, struct.error)


def is_safe_name(name: str) -> bool:
    """Tell whether a member may be unpacked below a folder under this name: relative, no dots in front, plain ASCII."""
    return _SAFE_NAME.fullmatch(name) is not None and len(name) <= 1000


class ArchiveWriter:
    """A sealed zip being written: to a temporary file that takes its place, whole, when the block ends.

    Raises:
        OSError: it cannot be written.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.parts: dict[str, Part] = {}
        """What was added, by name."""
        self._temporary = path.with_name(f".{path.name[:100]}.{os.getpid()}.part")
        self._zip = zipfile.ZipFile(self._temporary, "w", allowZip64=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        try:
            if kind is None:
                self._zip.comment = SEAL + b"0" * _DIGITS
                self._zip.close()
                self._seal()
                self._temporary.replace(self.path)
            else:
                self._zip.close()
        finally:
            self._temporary.unlink(missing_ok=True)

    def add(self, name: str, source: BinaryIO, *, packed: bool = False) -> None:
        """Add a member from an open file; `packed` content is stored as it is."""
        info = zipfile.ZipInfo(name, _EPOCH)
        # Endless repetition (rollouts gone bad) is stored as it is, or the reader would take it for a bomb.
        stored = packed or _packs_like_a_bomb(source)
        info.compress_type = zipfile.ZIP_STORED if stored else zipfile.ZIP_DEFLATED
        info.create_system = 3  # Unix, on every machine
        info.external_attr = 0o644 << 16
        digest, size = hashlib.sha256(), 0
        with self._zip.open(info, "w", force_zip64=True) as target:
            while chunk := source.read(_CHUNK):
                digest.update(chunk)
                size += len(chunk)
                target.write(chunk)
        self.parts[name] = Part(sha256=digest.hexdigest(), bytes=size)

    def _seal(self) -> None:
        with self._temporary.open("r+b") as stream:
            end = stream.seek(0, os.SEEK_END) - _DIGITS
            digest = _hash_of_first(stream, end)
            stream.seek(end)
            stream.write(digest.encode())
            stream.flush()
            os.fsync(stream.fileno())


def _packs_like_a_bomb(source: BinaryIO) -> bool:
    """Tell whether a reader would refuse this content if it were deflated; leaves the file at its beginning."""
    size = source.seek(0, os.SEEK_END)
    source.seek(0)
    if size <= RATIO_FREE_BYTES:
        return False
    deflate = zlib.compressobj(zlib.Z_DEFAULT_COMPRESSION, zlib.DEFLATED, -15)
    packed = 0
    while chunk := source.read(_CHUNK):
        packed += len(deflate.compress(chunk))
    source.seek(0)
    return size > MAX_RATIO * (packed + len(deflate.flush()))


def _hash_of_first(stream: BinaryIO, size: int) -> str:
    digest = hashlib.sha256()
    stream.seek(0)
    while size > 0 and (chunk := stream.read(min(_CHUNK, size))):
        digest.update(chunk)
        size -= len(chunk)
    return digest.hexdigest()


def is_archive(path: Path) -> bool:
    """Tell by content whether a file is meant as a sealed zip: it begins or ends like one."""
    try:
        with path.open("rb") as stream:
            if stream.read(4) == b"PK\x03\x04":
                return True
            stream.seek(max(0, stream.seek(0, os.SEEK_END) - _DIGITS - len(SEAL)))
            return stream.read(len(SEAL)) == SEAL
    except OSError:
        return False


class Archive:
    """A sealed zip being read. Nothing of it is in memory but its table of members.

    Raises:
        BaselineError: no such file, no zip, or one that must not be unpacked.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            with zipfile.ZipFile(path) as opened:
                infos = opened.infolist()
        except FileNotFoundError as error:
            raise BaselineError(path, "no such file") from error
        except OSError as error:
            raise BaselineError(path, f"cannot be read: {error.strerror or error}") from error
        except _DAMAGE as error:
            raise BaselineError(path, "is no baseline bundle, or a damaged one: it is not a whole zip file") from error
        self._infos = self._checked(infos)

    @property
    def names(self) -> frozenset[str]:
        """The names of the members."""
        return frozenset(self._infos)

    def size_of(self, name: str) -> int:
        """Return the unpacked size of a member in bytes."""
        return self._infos[name].file_size

    def seal_holds(self) -> bool:
        """Tell whether every byte of the file is as it was written."""
        try:
            with self.path.open("rb") as stream:
                end = stream.seek(0, os.SEEK_END) - _DIGITS
                if end < len(SEAL):
                    return False
                digest = _hash_of_first(stream, end)
                stream.seek(end - len(SEAL))
                return stream.read() == SEAL + digest.encode()
        except OSError as error:
            raise BaselineError(self.path, f"cannot be read: {error.strerror or error}") from error

    def read(self, name: str, *, limit: int, sha256: str | None = None) -> bytes:
        """Return a member's bytes; `limit` bounds them, `sha256` is checked where given."""
        if self.size_of(name) > limit:
            raise BaselineError(self.path, f"its part {name} unpacks to {self.size_of(name)} bytes, more than {limit}")
        parts: list[bytes] = []
        self._stream(name, parts.append, sha256)
        return b"".join(parts)

    def verify(self, name: str, sha256: str) -> None:
        """Read a member through and compare its hash."""
        self._stream(name, lambda _chunk: None, sha256)

    def extract(self, name: str, target: Path, sha256: str) -> None:
        """Unpack a member to a file, which appears only when it is whole and its hash is right."""
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = target.with_name(f".{target.name}.{os.getpid()}.part")
        try:
            with temporary.open("wb") as stream:
                self._stream(name, stream.write, sha256)
            temporary.replace(target)
        finally:
            temporary.unlink(missing_ok=True)

    def _stream(self, name: str, take: Callable[[bytes], object], sha256: str | None) -> None:
        digest = hashlib.sha256()
        for chunk in self._chunks(name):
            digest.update(chunk)
            take(chunk)
        if sha256 is not None and digest.hexdigest() != sha256:
            raise BaselineError(self.path, f"its part {name} was changed after it was recorded (its hash differs)")

    def _chunks(self, name: str) -> Iterator[bytes]:
        try:
            with zipfile.ZipFile(self.path) as opened, opened.open(self._infos[name]) as member:
                while chunk := member.read(_CHUNK):
                    yield chunk
        except (*_DAMAGE, OSError) as error:  # OSError also where a damaged table points before the file's beginning
            raise BaselineError(
                self.path, f"its part {name} is damaged or cannot be read; copy the bundle again"
            ) from error

    def _checked(self, infos: list[zipfile.ZipInfo]) -> Mapping[str, zipfile.ZipInfo]:
        """Return the members by name, if all of them may be unpacked."""
        if len(infos) > MAX_MEMBERS:
            raise BaselineError(self.path, f"has {len(infos)} parts, more than {MAX_MEMBERS}; refused")
        if (
            sum(info.file_size for info in infos) > MAX_TOTAL_BYTES
            or sum(info.compress_size for info in infos) > self.path.stat().st_size
        ):
            raise BaselineError(self.path, "claims more content than its size can hold; refused")
        found: dict[str, zipfile.ZipInfo] = {}
        for info in infos:
            if not is_safe_name(info.filename):
                raise BaselineError(self.path, f"has a part with an unsafe name, {info.filename[:80]!r}; refused")
            if info.filename in found:
                raise BaselineError(self.path, f"has two parts named {info.filename}; refused")
            if info.file_size > RATIO_FREE_BYTES and info.file_size > MAX_RATIO * info.compress_size:
                raise BaselineError(self.path, f"its part {info.filename} is packed like a zip bomb; refused")
            found[info.filename] = info
        return found
