# SPDX-License-Identifier: Apache-2.0
"""The verbs `fingerprint` and `preflight`: one side recorded, two sides compared."""

from __future__ import annotations

import difflib
import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sentinel.cli import FOUND, OK, output
from sentinel.errors import SettingsError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping, Sequence

    from rich.console import Console

    from sentinel.core.checklist import CheckResult, Mending
    from sentinel.sources.fingerprint import Parts

_STYLES = {"pass": "green", "fail": "bold red", "warn": "yellow", "unknown": "cyan"}
_SCENARIOS = ("hccl", "lccl", "single")


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the verbs."""
    fingerprint = subparsers.add_parser(
        "fingerprint", help="record one side: versions, variables, weights, configuration, data order"
    )
    fingerprint.add_argument("-o", "--output", metavar="FILE", type=Path, help="where to write it (JSON)")
    preflight = subparsers.add_parser("preflight", help="the alignment checklist: this side against a baseline")
    preflight.add_argument("--baseline", metavar="BUNDLE|FINGERPRINT", type=Path, required=True, help="the other side")
    preflight.add_argument("--target", metavar="FINGERPRINT", type=Path, help="this side, if it was recorded before")
    preflight.add_argument("--scenario", choices=_SCENARIOS, help="which variables are needed (default: found out)")
    preflight.add_argument("--run", dest="run_name", metavar="RUN", help="a watched run whose dump comparisons count")
    preflight.add_argument("--config", metavar="FILE", help="settings (default: SENTINEL_CONFIG, else the defaults)")
    preflight.add_argument(
        "--fix", action="store_true", help="print overrides, export lines and the mended launch script"
    )
    for parser in (fingerprint, preflight):
        parser.add_argument("--model", metavar="DIR", type=Path, help="the model's folder: its files are hashed")
        parser.add_argument("--log", metavar="LOG", type=Path, help="console log: verl prints its configuration there")
        parser.add_argument("--launch", metavar="SCRIPT", type=Path, help="launch script")
        parser.add_argument("--rollouts", metavar="DIR", type=Path, help="trainer.rollout_data_dir of the run")
        parser.add_argument("--quick", action="store_true", help="hash a sample of large files only, and say so")
        parser.add_argument(
            "--elsewhere", action="store_true", help="the files are of a run on another machine than this"
        )
        output.add_json_flag(parser)
    fingerprint.set_defaults(run=run_fingerprint)
    preflight.set_defaults(run=run_preflight)


def run_fingerprint(args: argparse.Namespace) -> int:
    """Record this side."""
    from sentinel.cli.progress import Progress
    from sentinel.sources.fingerprint import take

    if args.output is None and not args.json:
        raise SettingsError("fingerprint: give -o FILE, or --json for standard output")
    with Progress() as progress:
        document = take(parts(args), progress.says)
    if args.output is not None:
        _write(args.output, document)
    for note in document["notes"]:
        output.note(f"fingerprint: {note}")
    output.emit(args, document, lambda console: _show_fingerprint(console, args.output, document))
    return OK


def parts(args: argparse.Namespace) -> Parts:
    """Return where the options say that the parts of this side lie."""
    from sentinel.sources.fingerprint import Parts

    return Parts(
        model=args.model,
        log=args.log,
        launch=args.launch,
        rollouts=args.rollouts,
        quick=args.quick,
        elsewhere=args.elsewhere,
    )


def _write(path: Path, document: Mapping[str, Any]) -> None:
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        beside.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
        beside.replace(path)
    except OSError as error:
        beside.unlink(missing_ok=True)
        raise SettingsError(f"{path}: cannot be written: {error.strerror or error}") from error


def _show_fingerprint(console: Console, path: Path, document: Mapping[str, Any]) -> None:
    packages = document.get("process", {}).get("packages", {})
    files = document.get("model", {}).get("files", {})
    config = document.get("config", {})
    effective, explicit = config.get("effective"), config.get("explicit")
    console.print(f"{path}")
    console.print(f"  packages        {len(packages)}" if packages else "  packages        not looked at (--elsewhere)")
    console.print(f"  model           {len(files)} files" if files else "  model           not recorded (--model DIR)")
    known = f"known from {config.get('source')}" if effective else "not recorded (--log LOG)"
    console.print(f"  values in force {known}")
    console.print(
        f"  written         {len(explicit)} keys"
        if explicit is not None
        else "  written         not recorded (--launch SCRIPT)"
    )
    steps = document.get("data", {}).get("order", {})
    console.print(
        f"  data order      {len(steps)} steps" if steps else "  data order      not recorded (--rollouts DIR)"
    )


def run_preflight(args: argparse.Namespace) -> int:
    """Compare both sides; 1 unless every check passes or warns."""
    from sentinel.cli import sides
    from sentinel.cli.progress import Progress
    from sentinel.core.checklist import ALIGNED, check_all, mending, verdict
    from sentinel.daemon.alignment import load_rules
    from sentinel.settings import Settings, load

    config = args.config or os.environ.get("SENTINEL_CONFIG", "")
    home = (load(config) if config else Settings()).home_folder
    with Progress() as progress:
        progress.says("reading the baseline")
        golden = sides.baseline(args.baseline)
        target = sides.recorded(args.target) if args.target is not None else sides.looked_at(parts(args), progress.says)
        seen = sides.evidence(args, target, golden, home)
        results = check_all(target.side, golden.side, load_rules(), scenario=args.scenario, evidence=seen)
    answer = verdict(results)
    document: dict[str, Any] = {
        "checks": [to_plain(result) for result in results],
        "verdict": answer,
        "notes": [*golden.notes, *target.notes],
    }
    found = mending(results) if args.fix else None
    if found is not None:
        document["fix"] = {**asdict(found), "launch": _mended(args.launch, found)}
    for note in document["notes"]:
        output.note(f"preflight: {note}")
    output.emit(args, document, lambda console: show(console, results, answer, document.get("fix")))
    return OK if answer == ALIGNED else FOUND


def to_plain(result: CheckResult) -> dict[str, Any]:
    """Return a check in the form of the command-line contract, with why and differences."""
    plain = asdict(result)
    return {**plain, "differences": list(plain["differences"])}


def _mended(launch: Path | None, found: Mending) -> str:
    """Return the difference that would mend the launch script, as a patch; empty where there is none."""
    from sentinel.facts.secrets import clean_script
    from sentinel.sources.launch_mending import mended
    from sentinel.sources.launch_script import NoLaunchError

    if launch is None or not (found.overrides or found.exports):
        return ""
    before = launch.read_text(encoding="utf-8", errors="replace")
    try:
        after = mended(before, found.overrides, found.exports)
    except NoLaunchError:
        return ""
    # Lines around a change may hold credentials; a patch that is shown to others must not.
    lines = difflib.unified_diff(
        before.splitlines(keepends=True), after.splitlines(keepends=True), str(launch), f"{launch} (mended)"
    )
    return clean_script("".join(lines))


def show(console: Console, results: Sequence[CheckResult], answer: str, fix: Mapping[str, Any] | None) -> None:
    """Print the checks for people, what to do below each, and the verdict."""
    for result in results:
        console.print(f"{result.status:8}", style=_STYLES[result.status], end="")
        console.print(f"{result.id:20} {result.found}")
        if result.status == "pass":
            continue
        for line in (f"expected: {result.expected}", f"why: {result.why}" if result.why else "", f"-> {result.fix}"):
            if line not in ("", "-> "):
                console.print(f"{'':29}{line}", style="dim")
    if fix is not None:
        _show_fix(console, fix)
    console.print(
        answer, style="bold green" if answer == "aligned" else "bold red" if answer == "misaligned" else "bold cyan"
    )


def _show_fix(console: Console, fix: Mapping[str, Any]) -> None:
    if not any(fix.values()):
        console.print("\nnothing to mend that an override or a variable could mend")
        return
    for title, lines in (
        ("export before the launch", fix["exports"]),
        ("hydra overrides", fix["overrides"]),
        ("by hand", fix["by_hand"]),
    ):
        if lines:
            console.print(f"\n{title}:")
            for line in lines:
                console.print(f"  {line}")
    if fix["launch"]:
        console.print("\nthe launch script, mended (it was not changed):")
        console.print(fix["launch"].rstrip())
    console.print("")
