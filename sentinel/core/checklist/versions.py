# SPDX-License-Identifier: Apache-2.0
"""`versions.strict` and `versions.close`: what both sides compute with."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from packaging.version import InvalidVersion, Version

from sentinel.core.checklist.result import FAIL, PASS, UNKNOWN, WARN, CheckResult, Difference, worst
from sentinel.core.checklist.rules import Rules
from sentinel.core.checklist.side import Side


def strict(target: Side, golden: Side, rules: Rules) -> CheckResult:
    """The two that must agree, verl and transformers: the same version, and where both commits are known the same commit."""
    differences = [d for name in rules.strict for d in _strict(name, target, golden, rules)]
    differences += between_workers(target, rules.strict, FAIL)
    return CheckResult(
        id="versions.strict",
        title="verl and transformers are the same",
        status=worst(d.status for d in differences),
        found=_said(
            differences, [f"{name} {target.versions[name]}" for name in rules.strict if name in target.versions]
        ),
        expected=", ".join(f"{name} {golden.versions.get(name, 'unknown')}" for name in rules.strict),
        fix="; ".join(d.fix for d in differences if d.fix),
        why="; ".join(rules.version_why[name] for name in rules.strict if name in rules.version_why),
        differences=tuple(differences),
    )


def close(target: Side, golden: Side, rules: Rules) -> CheckResult:
    """Everything else: equal, or at least of one major and minor version."""
    compared, differences = [], []
    for name in rules.close:
        one = _close(name, target, golden, rules)
        if one is not None:
            compared.append(name)
            differences += [one] if one.status != PASS else []
    for name in rules.close_where_both:
        if name in target.versions and name in golden.versions:
            compared.append(name)
            one = _close(name, target, golden, rules)
            differences += [one] if one is not None and one.status != PASS else []
    differences += between_workers(target, (*rules.close, *rules.close_where_both), WARN)
    nothing = not any(name in target.versions and name in golden.versions for name in compared)
    return CheckResult(
        id="versions.close",
        title="Everything else that computes is close",
        status=UNKNOWN if nothing else worst(d.status for d in differences),
        found="no version is known on both sides" if nothing else _said(differences, [f"{len(compared)} compared"]),
        expected="equal, or the same major and minor version",
        fix="record both sides with `sentinel fingerprint`"
        if nothing
        else "; ".join(d.fix for d in differences if d.fix),
        differences=tuple(differences),
    )


def _strict(name: str, target: Side, golden: Side, rules: Rules) -> Iterator[Difference]:
    here, there = target.versions.get(name), golden.versions.get(name)
    why = rules.version_why.get(name, "")
    if here is None or there is None:
        side = "the target" if here is None else "the baseline"
        absent = here is None and target.versions_whole
        yield Difference(
            what=name,
            found=here or ("not installed" if absent else "unknown"),
            expected=there or "unknown",
            status=FAIL if absent and there is not None else UNKNOWN,
            why=why,
            fix=f"install {name} {there}" if absent and there else f"record {side} with `sentinel fingerprint`",
        )
        return
    if _public(here) != _public(there) or "unknown" in (here, there):
        status = UNKNOWN if "unknown" in (here, there) else FAIL
        yield Difference(
            what=name, found=here, expected=there, status=status, why=why, fix=f"pip install {name}=={there}"
        )
        return
    ours, theirs = target.commits.get(name), golden.commits.get(name)
    if ours and theirs and not (ours.startswith(theirs) or theirs.startswith(ours)):
        yield Difference(
            what=f"{name} (commit)",
            found=ours[:12],
            expected=theirs[:12],
            why=f"{why}; the number {here} is the same, the code is not",
            fix=f"git checkout {theirs[:12]} in the checkout of {name}",
        )


def _close(name: str, target: Side, golden: Side, rules: Rules) -> Difference | None:
    """Return the difference; one with status `pass` where they are close; None where neither side has it."""
    here, there = target.versions.get(name), golden.versions.get(name)
    why = rules.version_why.get(name, "")
    if here is None and there is None:
        return None
    if here is None or there is None:
        whole = (target if here is None else golden).versions_whole
        if not whole:
            return None  # not looked at on one side: nothing is compared, and nothing is claimed
        return Difference(
            what=name,
            found=here or "not installed",
            expected=there or "not installed",
            status=WARN,
            why=why,
            fix=f"install {name} {there}" if there else "",
        )
    if _public(here) == _public(there) or _minor(here) == _minor(there) != ():
        return Difference(what=name, found=here, expected=there, status=PASS)
    return Difference(what=name, found=here, expected=there, status=WARN, why=why, fix=f"use {name} {there}")


def between_workers(side: Side, names: Iterable[str], status: str) -> list[Difference]:
    """Return the packages that differ between the processes of one run."""
    found = []
    for name in names:
        by_version: dict[str, list[str]] = {}
        for process in side.processes:
            if name in process.versions:
                by_version.setdefault(process.versions[name], []).append(process.name)
        if len(by_version) > 1:
            said = "; ".join(f"{version} on {', '.join(where[:4])}" for version, where in sorted(by_version.items()))
            found.append(
                Difference(
                    what=f"{name} (between workers)",
                    found=said,
                    expected="one version on all ranks",
                    status=status,
                    fix=f"install one version of {name} on every node",
                )
            )
    return found


def _public(version: str) -> object:
    """Return a version without its build (`+cpu`, `+cu128`), which says nothing about the code."""
    try:
        return Version(Version(version).public)
    except InvalidVersion:
        return version.split("+", maxsplit=1)[0]


def _minor(version: str) -> tuple[int, ...]:
    try:
        return Version(version).release[:2]
    except InvalidVersion:
        return ()


def _said(differences: Iterable[Difference], equal: list[str]) -> str:
    said = [f"{d.what}: {d.found}, baseline {d.expected}" for d in differences]
    return "; ".join(said) or ", ".join(equal)


def versions_of(side: Side) -> Mapping[str, str]:
    """Return what a side computes with, for people."""
    return dict(sorted(side.versions.items()))
