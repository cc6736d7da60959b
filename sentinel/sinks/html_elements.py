# SPDX-License-Identifier: Apache-2.0
"""HTML that cannot be injected into: every string is escaped unless this module made it."""

from __future__ import annotations

import html


class Markup(str):
    """Text that is HTML already; only `tag` and `join` make it."""

    __slots__ = ()


def tag(name: str, /, *children: str | float | None, **attributes: str | float | None) -> Markup:
    """One element. Attributes of None are left out; `class_` and `for_` lose the underscore, others become hyphens.

    >>> tag("p", "a < b", class_="note")
    '<p class="note">a &lt; b</p>'
    """
    parts = [name]
    for key, value in attributes.items():
        if value is not None:
            parts.append(f'{key.rstrip("_").replace("_", "-")}="{escape(str(value))}"')
    head = " ".join(parts)
    if name in _VOID:
        return Markup(f"<{head}>")
    return Markup(f"<{head}>{join(*children)}</{name}>")


def join(*children: str | float | None) -> Markup:
    """Children one after the other, escaped where they are no markup; None is nothing."""
    return Markup("".join(escape(child) for child in children if child is not None))


def escape(value: str | float) -> str:
    """Text as HTML text. Characters that no HTML may hold, and direction overrides, become visible marks."""
    if isinstance(value, Markup):
        return value
    return html.escape("".join(_visible(character) for character in str(value)), quote=True)


def both(en: str, zh: str) -> Markup:
    """The same in English and Chinese; the page's switch shows one of them."""
    return join(tag("span", en, class_="en", lang="en"), tag("span", zh, class_="zh", lang="zh"))


_VOID = frozenset({"meta", "input", "br", "hr", "link"})


def _visible(character: str) -> str:
    code = ord(character)
    control = (code < 32 and character not in "\t\n\r") or 0x7F <= code < 0xA0
    hidden = 0x202A <= code <= 0x202E or 0x2066 <= code <= 0x2069 or 0xD800 <= code <= 0xDFFF
    return f"\\u{code:04x}" if control or hidden else character
