# SPDX-License-Identifier: Apache-2.0
"""Who may ask the HTTP endpoint: its settings, its token, its certificate, and which host names it answers to."""

from __future__ import annotations

import base64
import binascii
import contextlib
import ipaddress
import ssl
import urllib.parse
from dataclasses import dataclass
from pathlib import Path

from sentinel.errors import SettingsError

LOOPBACK = ("127.0.0.1", "::1", "localhost")


@dataclass(frozen=True, kw_only=True, slots=True)
class HttpSettings:
    """Where the endpoint listens and who may ask."""

    host: str = "127.0.0.1"
    """Address to listen on; any other than loopback needs `token_file` or `insecure`."""
    port: int = 9477
    """0: a free one. Taken: a free one, and `sentinel status` says which. Not 10002-19999, which are Ray's."""
    token_file: str | None = None
    """File whose first line is the token: `Authorization: Bearer TOKEN`, or the password of a browser's question."""
    insecure: bool = False
    """True: listen beyond loopback without a token, for networks that are closed."""
    tls_cert_file: str | None = None
    """PEM certificate chain; with `tls_key_file` the endpoint speaks https."""
    tls_key_file: str | None = None

    def __post_init__(self) -> None:
        if not (0 <= self.port < 10002 or 19999 < self.port < 65536):
            raise ValueError(
                f"port is {self.port}; it must be 0, below 10002 or above 19999 (Ray's workers take those)"
            )
        if self.host not in LOOPBACK and self.token_file is None and not self.insecure:
            raise ValueError(f"host is {self.host!r}; beyond loopback a token_file is needed, or insecure: true")
        if (self.tls_cert_file is None) != (self.tls_key_file is None):
            raise ValueError("tls_cert_file and tls_key_file go together")


def read_token(settings: HttpSettings) -> bytes | None:
    """Return the token that requests must show; None where none is asked for.

    Raises:
        SettingsError: the file cannot be read, or holds no token that is long enough.
    """
    if settings.token_file is None:
        return None
    path = Path(settings.token_file).expanduser()
    try:
        first = path.read_text(encoding="utf-8").strip().split("\n")[0].strip()
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"http.token_file {path}: {getattr(error, 'strerror', None) or error}") from error
    if len(first) < 16:
        raise SettingsError(f"http.token_file {path}: the token has {len(first)} characters; at least 16 are needed")
    return first.encode()


def tls_context(settings: HttpSettings) -> ssl.SSLContext:
    """Return what the endpoint speaks https with.

    Raises:
        SettingsError: certificate or key cannot be used.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(str(settings.tls_cert_file), settings.tls_key_file)
    except (OSError, ssl.SSLError) as error:
        raise SettingsError(f"http.tls_cert_file {settings.tls_cert_file}: {error}") from error
    return context


def offered_token(authorization: str) -> bytes:
    """Return the token in an Authorization header: of the Bearer scheme, or the password of the Basic one."""
    scheme, _, rest = authorization.partition(" ")
    if scheme.lower() == "bearer":
        return rest.strip().encode("utf-8", "replace")
    if scheme.lower() == "basic":
        with contextlib.suppress(binascii.Error, ValueError):
            return base64.b64decode(rest).partition(b":")[2]
    return b""


def is_local(host: str) -> bool:
    """Return whether a Host header names loopback or an address; other names can be pointed here by anybody."""
    name = urllib.parse.urlsplit(f"//{host}").hostname or ""
    if name in LOOPBACK:
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
