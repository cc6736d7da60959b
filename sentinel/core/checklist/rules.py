# SPDX-License-Identifier: Apache-2.0
"""The alignment rules, as `data/checklist.toml` says them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

IGNORE = "ignore"
SCENARIOS = ("hccl", "lccl", "single")


@dataclass(frozen=True, kw_only=True, slots=True)
class Variable:
    """An environment variable that determinism needs."""

    name: str
    value: str
    accept: tuple[str, ...]
    scenarios: tuple[str, ...]
    only_with: str
    """Package that must be there for the variable to matter; empty: always."""
    why: str
    source: str


@dataclass(frozen=True, kw_only=True, slots=True)
class KeyRule:
    """How bad it is when a configuration key differs."""

    pattern: re.Pattern[str]
    severity: str
    check: str
    """Id of the check that looks at this key; empty: the configuration's own."""
    why: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Expected:
    """A value, or an equality of keys, that the comparison needs whether or not both sides agree."""

    keys: tuple[str, ...]
    values: tuple[object, ...]
    """Of one key; empty: the keys must be equal to each other."""
    why: str
    source: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Rules:
    """All of them."""

    strict: tuple[str, ...]
    close: tuple[str, ...]
    close_where_both: tuple[str, ...]
    version_why: Mapping[str, str]
    variables: tuple[Variable, ...]
    keys: tuple[KeyRule, ...]
    any_key: re.Pattern[str]
    """The patterns of `keys` as one, a group each: the first that fits in one pass."""
    expected: tuple[Expected, ...]
    weights: re.Pattern[str]
    config: re.Pattern[str]
    advice: Mapping[str, str]

    @classmethod
    def from_mapping(cls, plain: Mapping[str, Any]) -> Rules:
        """Return the rules of a parsed `checklist.toml`; a missing table is a bug of the file, and raises KeyError."""
        versions, model = plain["versions"], plain["model"]
        keys = tuple(rule for one in plain["keys"] for rule in _key_rules(one))
        return cls(
            strict=tuple(versions["strict"]),
            close=tuple(versions["close"]),
            close_where_both=tuple(versions["close_where_both"]),
            version_why=dict(versions["why"]),
            variables=tuple(_variable(one) for one in plain["variables"]),
            keys=keys,
            any_key=re.compile("|".join(f"({rule.pattern.pattern})" for rule in keys), re.DOTALL),
            expected=(*map(_expected, plain["expect"]), *map(_expected, plain["equal"])),
            weights=_any_of(model["weights"]),
            config=_any_of(model["config"]),
            advice=dict(model["advice"]),
        )

    def of_key(self, key: str) -> KeyRule:
        """Return the first rule that fits a key; the file ends with one that fits every key."""
        found = self.any_key.fullmatch(key)
        assert found is not None
        assert found.lastindex is not None
        return self.keys[found.lastindex - 1]

    def for_scenario(self, scenario: str) -> tuple[Variable, ...]:
        """Return the variables that a scenario needs."""
        return tuple(one for one in self.variables if scenario in one.scenarios)


def _variable(one: Mapping[str, Any]) -> Variable:
    return Variable(
        name=one["name"],
        value=one["value"],
        accept=tuple(one.get("accept", [one["value"]])),
        scenarios=tuple(one["scenarios"]),
        only_with=one.get("only_with", ""),
        why=one["why"],
        source=one["source"],
    )


def _key_rules(one: Mapping[str, Any]) -> Iterator[KeyRule]:
    for pattern in one["patterns"]:
        yield KeyRule(
            pattern=re.compile(_glob(pattern), re.DOTALL),
            severity=one.get("severity", IGNORE),
            check=one.get("check", ""),
            why=one.get("why", ""),
        )


def _expected(one: Mapping[str, Any]) -> Expected:
    keys = tuple(one["keys"]) if "keys" in one else (one["key"],)
    return Expected(keys=keys, values=tuple(one.get("values", ())), why=one["why"], source=one["source"])


def _any_of(patterns: list[str]) -> re.Pattern[str]:
    return re.compile("|".join(_glob(pattern) for pattern in patterns))


def _glob(pattern: str) -> str:
    return ".*".join(re.escape(part) for part in pattern.split("*"))
