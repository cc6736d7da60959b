# SPDX-License-Identifier: Apache-2.0
"""`weights.files` and `weights.config`: both sides start from the same model."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from sentinel.core.checklist.result import FAIL, UNKNOWN, WARN, CheckResult, Difference, worst
from sentinel.core.checklist.rules import Rules
from sentinel.core.checklist.side import Side, comparable, flatten

_COPY = "copy the baseline's model folder, and compare again"
_SHOWN = 5


def weight_files(target: Side, golden: Side, rules: Rules) -> CheckResult:
    """Every shard and every file of the tokenizer has the same hash."""
    title = "Weights and tokenizer are the same files"
    missing = _not_known(target, golden)
    if missing:
        return _unknown("weights.files", title, missing)
    ours, theirs = _chosen(target, rules.weights), _chosen(golden, rules.weights)
    if not theirs or not ours:
        side = "the baseline's" if not theirs else "this"
        return _unknown(
            "weights.files", title, f"{side} model folder holds no weights or tokenizer that is known by name"
        )
    differences = list(_files(ours, theirs))
    total = sum(size for entry in ours.values() if isinstance(size := entry.get("bytes"), int))
    equal = f"{len(ours)} files, {total / 1e9:.2f} GB, equal by hash"
    return CheckResult(
        id="weights.files",
        title=title,
        status=worst(d.status for d in differences),
        found=_listed(differences) or equal,
        expected=f"{len(theirs)} files of the baseline",
        fix=_fix(differences),
        why="a run from other weights is another run; the same name on a hub may be another revision",
        differences=tuple(differences),
    )


def config_files(target: Side, golden: Side, rules: Rules) -> CheckResult:
    """config.json and generation_config.json say the same."""
    title = "config.json and generation_config.json are the same"
    missing = _not_known(target, golden)
    if missing:
        return _unknown("weights.config", title, missing)
    ours, theirs = _chosen(target, rules.config), _chosen(golden, rules.config)
    if not ours and not theirs:
        return _unknown("weights.config", title, "neither model folder holds a config.json")
    differences = []
    for name in sorted({*ours, *theirs}):
        if name not in ours or name not in theirs or _hash(ours[name]) != _hash(theirs[name]):
            differences += list(_document(name, target, golden, rules))
    return CheckResult(
        id="weights.config",
        title=title,
        status=worst(d.status for d in differences),
        found=_listed(differences) or f"{', '.join(sorted(ours))} equal",
        expected=f"{', '.join(sorted(theirs)) or 'none'} of the baseline",
        fix=_fix(differences),
        why="they decide dtype, positions, and where a response ends",
        differences=tuple(differences),
    )


def _document(name: str, target: Side, golden: Side, rules: Rules) -> Iterator[Difference]:
    """Yield what one of the two files says otherwise: by key where both contents were kept, else by hash."""
    entries = [(side.files or {}).get(name) for side in (target, golden)]
    if None in entries:
        said = ["missing" if entry is None else "there" for entry in entries]
        yield Difference(what=name, found=said[0], expected=said[1], fix=_COPY)
        return
    ours, theirs = (entry or {} for entry in entries)
    unreadable = ours.get("unreadable") or theirs.get("unreadable")
    here, there = target.documents.get(name), golden.documents.get(name)
    if unreadable:
        yield Difference(what=name, found=str(unreadable), expected="readable", status=UNKNOWN, fix="make it readable")
    elif here is None or there is None:
        yield Difference(what=name, found=_short(ours), expected=_short(theirs), fix=_COPY)
    else:
        parted = list(_keys(name, flatten(here), flatten(there), rules))
        layout = "white space or order only"
        yield from parted or [
            Difference(what=name, found="other bytes, equal values", expected="equal", status=WARN, why=layout)
        ]


def _keys(name: str, here: Mapping[str, object], there: Mapping[str, object], rules: Rules) -> Iterator[Difference]:
    for key in sorted({*here, *there}):
        found, expected = here.get(key, "absent"), there.get(key, "absent")
        if comparable(found) == comparable(expected):
            continue
        tail = key.rpartition(".")[2]
        yield Difference(
            what=f"{name}: {key}",
            found=found,
            expected=expected,
            # Which transformers wrote the file, and from where, says nothing about the model.
            status=WARN if tail in ("transformers_version", "_name_or_path") else FAIL,
            why=rules.advice.get(tail, ""),
            fix=f"set {key} in {name} to {expected!r}" if expected != "absent" else f"take {key} out of {name}",
        )


def _files(
    ours: Mapping[str, Mapping[str, object]], theirs: Mapping[str, Mapping[str, object]]
) -> Iterator[Difference]:
    for name in sorted({*ours, *theirs}):
        here, there = ours.get(name), theirs.get(name)
        if here is None or there is None:
            yield Difference(
                what=name,
                found="there" if here is not None else "missing",
                expected="there" if there is not None else "missing",
                fix=_COPY,
            )
        elif "unreadable" in here or "unreadable" in there:
            reason = here.get("unreadable") or there.get("unreadable")
            yield Difference(
                what=name,
                found=str(reason),
                expected="readable",
                status=UNKNOWN,
                fix="make it readable, then record again",
            )
        elif here.get("bytes") != there.get("bytes"):
            yield Difference(
                what=name, found=f"{here.get('bytes')} bytes", expected=f"{there.get('bytes')} bytes", fix=_COPY
            )
        elif "sha256" in here and "sha256" in there:
            if here["sha256"] != there["sha256"]:
                yield Difference(what=name, found=_short(here), expected=_short(there), fix=_COPY)
        elif "sampled" in here and "sampled" in there and here["sampled"] != there["sampled"]:
            yield Difference(what=name, found="other bytes in the sample", expected="equal", fix=_COPY)
        else:
            yield Difference(
                what=name,
                found="compared by size and sample only",
                expected="compared by hash",
                status=UNKNOWN,
                fix="record both sides without --quick",
            )


def _not_known(target: Side, golden: Side) -> str:
    if golden.files is None:
        return "the baseline was recorded without its model (--model DIR)"
    return "" if target.files is not None else "no model folder was given here (--model DIR)"


def _chosen(side: Side, pattern: re.Pattern[str]) -> dict[str, Mapping[str, object]]:
    return {name: entry for name, entry in (side.files or {}).items() if pattern.fullmatch(name.rpartition("/")[2])}


def _hash(entry: Mapping[str, object]) -> object:
    return entry.get("sha256", entry.get("sampled"))


def _short(entry: Mapping[str, object]) -> str:
    return str(_hash(entry) or "unknown")[:12]


def _unknown(identity: str, title: str, why: str) -> CheckResult:
    return CheckResult(
        id=identity,
        title=title,
        status=UNKNOWN,
        found=why,
        expected="equal by hash",
        fix="`sentinel fingerprint --model DIR` on both sides",
    )


def _listed(differences: list[Difference]) -> str:
    said = [f"{d.what}: {d.found}, expected {d.expected}" for d in differences[:_SHOWN]]
    more = len(differences) - _SHOWN
    return "; ".join([*said, *([f"and {more} more"] if more > 0 else [])])


def _fix(differences: list[Difference]) -> str:
    return "; ".join(dict.fromkeys(d.fix for d in differences if d.fix))
