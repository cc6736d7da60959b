# SPDX-License-Identifier: Apache-2.0
"""What must not leave a machine: credentials, and the names of people in paths. Cut out where values are first read."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

CUT_OUT = "<cut out>"

_SECRET_NAME = re.compile(
    r"(^|[_\-.])(tokens?|secrets?|passwords?|passwd|pwd|api_?keys?|access_?keys?|secret_?keys?|access_?key_?id|"
    r"private_?keys?|credentials?|auth|cookie|ak|sk)$",
    re.IGNORECASE,
)
# `pad_token: <pad>` says how text is made into rows; it must stay comparable.
_TEXT_TOKEN = re.compile(
    r"(^|[_\-.])(eos|bos|pad|unk|sep|cls|mask|image|video|audio|vision|stop|start|end|special|additional_special|added|"
    r"new|n|max|min|num|total|response|prompt|think|tool|begin|boundary)s?_tokens?$",
    re.IGNORECASE,
)
_SHAPES = (
    re.compile(r"(?<=://)[^/\s@]+(?=@)"),  # user:password@ of a URL
    re.compile(r"\b(?:hf|api)_[A-Za-z0-9]{16,}\b"),
    re.compile(r"\bsk-[A-Za-z0-9_\-]{16,}\b"),
    re.compile(r"\bgh[pousr]_[A-Za-z0-9]{16,}\b"),
    re.compile(r"\bgithub_pat_[A-Za-z0-9_]{16,}\b"),
    re.compile(r"\bglpat-[A-Za-z0-9_\-]{16,}\b"),
    re.compile(r"\bxox[abprs]-[A-Za-z0-9\-]{10,}"),
    re.compile(r"\b(?:AKIA|ASIA|LTAI)[A-Za-z0-9]{12,}\b"),
    re.compile(r"\beyJ[A-Za-z0-9_\-]{10,}\.[A-Za-z0-9_\-]{10,}(?:\.[A-Za-z0-9_\-]*)?"),
    re.compile(r"(?<=[Bb]earer )[A-Za-z0-9._~+/=\-]{8,}"),
    re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|$)", re.DOTALL),
)
_IN_TEXT = re.compile(
    r"(?i)(?<=[?&;,\s\"'])(?:[a-z0-9_\-]*(?:token|secret|password|passwd|api_?key|access_?key))=[^\s&\"',;]+"
)
# NAME=VALUE, key=value, --option value, "key": "value"; a value that is a variable of its own is no credential.
_ASSIGNED = re.compile(
    r"(?:(?P<option>--[A-Za-z][\w\-]*[ \t]+)|(?P<name>[A-Za-z_][\w.\-]*)(?P<between>\s*=\s*|[\"']\s*:\s*))"
    r"(?P<value>\"(?!\$)[^\"\n]*\"|'[^'\n]*'|(?!\$)[^\s\\;&|\"'}]+)"
)
_PERSON = re.compile(r"(?P<root>/(?:home|Users|users)/)(?!<user>)[^/\s:,;\"']+")


def is_secret_name(name: str) -> bool:
    """Return whether a setting or variable of this name holds a credential."""
    return bool(_SECRET_NAME.search(name)) and not _TEXT_TOKEN.search(name)


def clean_text(text: str) -> str:
    """Return a text without credentials of known shape and without the names of people in paths."""
    for shape in (*_SHAPES, _IN_TEXT):
        text = shape.sub(CUT_OUT, text)
    return _PERSON.sub(r"\g<root><user>", text)


def clean_script(text: str) -> str:
    """Return a shell script without credentials; paths stay as they are, it is shown to whoever wrote it."""
    text = _ASSIGNED.sub(_without_value, text)
    for shape in _SHAPES:
        text = shape.sub(CUT_OUT, text)
    return text


def _without_value(found: re.Match[str]) -> str:
    name = found["name"] or found["option"].strip(" \t-")
    before, value = found[0][: found.start("value") - found.start()], found["value"]
    if is_secret_name(name.replace("-", "_")):
        return before + CUT_OUT
    # A quoted value may be a document of its own.
    return before + (value[0] + _ASSIGNED.sub(_without_value, value[1:]) if value[0] in "\"'" else value)


def clean_value(name: str, text: str) -> str:
    """Return the text of the setting or variable `name`, cut out where it is a credential."""
    if text and is_secret_name(name):
        return CUT_OUT
    return clean_text(text)


def clean_plain(value: object, name: str = "") -> object:
    """Return a value as JSON can hold it, nested, without credentials and without the names of people in paths."""
    if isinstance(value, Mapping):
        return {str(key): clean_plain(inner, str(key)) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [clean_plain(inner, name) for inner in value]
    if isinstance(value, str):
        return clean_value(name, value)
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value if value is None or isinstance(value, (int, float, bool)) else clean_text(str(value))
