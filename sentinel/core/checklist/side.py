# SPDX-License-Identifier: Apache-2.0
"""One side of the comparison: what is known of a run, from whatever recorded it.

Absent is None, never empty: a side that was not looked at differs from one that has nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

FORMAT = 1
"""Of the fingerprint document; readers refuse others."""

_WORDS: dict[str, object] = {"true": True, "false": False, "none": None, "null": None, "~": None}


@dataclass(frozen=True, kw_only=True, slots=True)
class Process:
    """One process of a run, a worker or the launcher."""

    name: str
    variables: Mapping[str, str] | None = None
    versions: Mapping[str, str] = field(default_factory=dict)
    seeds: Mapping[str, object] | None = None
    """What it says of `seed_all`: `{"called": bool, "mode": bool, "seed": int}`; None: nothing is known."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Side:
    """What is known of one run."""

    versions: Mapping[str, str] = field(default_factory=dict)
    commits: Mapping[str, str] = field(default_factory=dict)
    versions_whole: bool = False
    """Whether a package that is not listed is known to be absent."""
    processes: tuple[Process, ...] = ()
    """The workers where they are known, else the launcher alone."""
    workers_known: bool = False
    hardware: Mapping[str, object] = field(default_factory=dict)
    files: Mapping[str, Mapping[str, object]] | None = None
    """Path in the model's folder -> `{"bytes", "sha256"}` or `{"bytes", "sampled"}` or `{"unreadable"}`."""
    documents: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    """Content of config.json and generation_config.json."""
    effective: Mapping[str, object] | None = None
    """Every value of the configuration, by dotted key."""
    effective_why: str = "no log or live configuration was given"
    explicit: Mapping[str, object] | None = None
    """What the launch wrote, by dotted key."""
    explicit_why: str = "no launch script was given"
    unresolved: frozenset[str] = frozenset()
    """Keys whose value the launch takes from elsewhere."""
    order: Mapping[int, Mapping[str, object]] | None = None
    """Step -> `{"prompts": hash, "texts": hash, "rows": int}` of its rollouts."""
    notes: tuple[str, ...] = ()

    @property
    def on_npu(self) -> bool | None:
        """Whether the run computes on NPUs; None where nothing says so."""
        if self.hardware.get("npus") or "torch_npu" in self.versions:
            return True
        device = self.value("trainer.device")
        if isinstance(device, str):
            return device == "npu"
        return None if not self.hardware else False

    def value(self, key: str) -> object:
        """Return the value of a configuration key; None where it is not known."""
        for values in (self.effective, self.explicit):
            if values is not None and key in values:
                return values[key]
        return None

    def knows(self, key: str) -> bool:
        """Return whether the value of a key is known; a written value that is not resolved is not."""
        if self.effective is not None and key in self.effective:
            return True
        return self.explicit is not None and key in self.explicit and key not in self.unresolved

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> Side:
        """Return the side that a fingerprint document, or what a baseline kept, describes.

        Raises:
            ValueError: it was written in a format that is not known here; the text says which.
        """
        version = plain.get("sentinel_fingerprint", FORMAT)
        if version != FORMAT:
            raise ValueError(
                f"fingerprint format {version} is not known here (known: {FORMAT}); use the Sentinel that wrote it"
            )
        facts = _mapping(plain.get("facts"))
        own = _mapping(plain.get("process")) or _mapping(facts.get("process"))
        workers = [_process(_mapping(one)) for one in _list(plain.get("workers")) or _list(facts.get("workers"))]
        versions, commits = _versions(own, facts)
        for worker in reversed(_list(plain.get("workers")) or _list(facts.get("workers"))):
            # What computes counts: a worker's environment may be another one than the launcher's.
            there, which = _versions(_mapping(worker), {})
            versions |= there
            commits = {name: commit for name, commit in commits.items() if name not in there} | which
        model = _mapping(plain.get("model"))
        config = _mapping(plain.get("config")) or _mapping(facts.get("config"))
        launcher = _process({"name": "launcher", **own}) if own else None
        effective = config.get("effective", config.get("values"))
        return cls(
            versions=versions,
            commits=commits,
            versions_whole="packages" in own,
            processes=tuple(workers) or ((launcher,) if launcher else ()),
            workers_known=bool(workers),
            hardware=_mapping(own.get("hardware")),
            files=_mapping(model["files"]) if isinstance(model.get("files"), Mapping) else None,
            documents={name: _mapping(value) for name, value in _mapping(model.get("documents")).items()},
            effective=flatten(effective) if isinstance(effective, Mapping) else None,
            effective_why=_reason(config, "effective", cls.effective_why_default()),
            explicit=_mapping(config["explicit"]) if isinstance(config.get("explicit"), Mapping) else None,
            explicit_why=_reason(config, "explicit", "no launch script was given"),
            unresolved=frozenset(str(key) for key in _list(config.get("unresolved"))),
            order=_order(_mapping(plain.get("data")).get("order")),
            notes=tuple(str(note) for note in _list(plain.get("notes"))),
        )

    @staticmethod
    def effective_why_default() -> str:
        """Return what is said where nobody said why the configuration is not known."""
        return "no log or live configuration was given"


def flatten(value: Mapping[str, Any], prefix: str = "") -> dict[str, object]:
    """Return nested mappings as one level of dotted keys; an empty mapping stays a value."""
    flat: dict[str, object] = {}
    for key, inner in value.items():
        name = f"{prefix}.{key}" if prefix else str(key)
        if isinstance(inner, Mapping) and inner:
            flat |= flatten(inner, name)
        else:
            flat[name] = inner
    return flat


def comparable(value: object) -> object:
    """Return a value so that equal settings are equal: `1e-06`, `1e-6` and 1e-6; `True` and `true`; `null` and None."""
    if isinstance(value, Mapping):
        return tuple(sorted((str(key), comparable(inner)) for key, inner in value.items()))
    if isinstance(value, (list, tuple)):
        return tuple(comparable(inner) for inner in value)
    if isinstance(value, bool) or value is None:
        return value
    text = str(value).strip()
    word = text.lower()
    if word in _WORDS:
        return _WORDS[word]
    try:
        number = float(text)
    except ValueError:
        return text
    return "nan" if math.isnan(number) else number


def _process(plain: Mapping[str, Any]) -> Process:
    variables = plain.get("variables")
    seeds = plain.get("seeds")
    rank = plain.get("rank")
    name = plain.get("name") or (f"rank {rank}" if rank is not None else str(plain.get("host") or "a process"))
    return Process(
        name=str(name),
        variables={str(k): str(v) for k, v in variables.items()} if isinstance(variables, Mapping) else None,
        versions=_versions(plain, {})[0],
        seeds=seeds if isinstance(seeds, Mapping) else None,
    )


def _versions(own: Mapping[str, Any], facts: Mapping[str, Any]) -> tuple[dict[str, str], dict[str, str]]:
    """Return versions and commits: as the process says them, else the few that a run's first report holds."""
    versions: dict[str, str] = {}
    commits: dict[str, str] = {}
    named = ("verl", "torch", "transformers", "ray", "tensordict", "torch_npu", "vllm", "python")
    versions |= {name: str(facts[name]) for name in named if facts.get(name)}
    for name, entry in _mapping(own.get("packages")).items():
        if isinstance(entry, Mapping):
            versions[name] = str(entry.get("version") or "unknown")
            if entry.get("commit"):
                commits[name] = str(entry["commit"])
    if own.get("python"):
        versions["python"] = str(own["python"])
    hardware = _mapping(own.get("hardware"))
    names = ("cann", "driver", "firmware", "nvidia_driver")
    return versions | {name: str(hardware[name]) for name in names if hardware.get(name)}, commits


def _order(value: object) -> dict[int, Mapping[str, object]] | None:
    if not isinstance(value, Mapping) or not value:
        return None
    return {int(step): _mapping(entry) for step, entry in value.items() if str(step).isdigit()}


def _reason(config: Mapping[str, Any], part: str, default: str) -> str:
    if "sha256" in config:
        return "only a hash of the launch script was kept; record it with this version's `sentinel fingerprint`"
    return str(_mapping(config.get("why")).get(part) or default)


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _list(value: object) -> Sequence[Any]:
    return value if isinstance(value, (list, tuple)) else ()
