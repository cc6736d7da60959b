# SPDX-License-Identifier: Apache-2.0
"""`sentinel triage`: where two dumps part first, or where one dump's first NaN or Inf arises."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

    from sentinel.records import Divergence, Triage

_FINE = frozenset({"same", "clean"})
_SHOWN_NAMES = 8


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the verb."""
    from sentinel.cli.output import add_json_flag

    parser = subparsers.add_parser(
        "triage",
        help="compare a dump with its golden one, or find the first NaN of a dump",
        description="Compare an msprobe dump with a golden one and name the first module that parts, forward, backward or in "
        "its parameters. With one dump: name where the first NaN or Inf arises.",
    )
    parser.add_argument("target", metavar="TARGET", help="dump root, step, stage or rank directory, or a dump.json")
    parser.add_argument("golden", metavar="GOLDEN", nargs="?", help="the same of the reference")
    parser.add_argument(
        "--clean",
        nargs=2,
        metavar=("TARGET2", "GOLDEN2"),
        help="a healthy pair of the same two machines: shows how far they part anyway",
    )
    parser.add_argument("--baseline", metavar="BUNDLE", help="bundle whose twins' dumps show how far the machines part")
    parser.add_argument(
        "--map", metavar="FILE", help="YAML or JSON: module path of the target -> path in the golden dump"
    )
    parser.add_argument("--stages", metavar="STAGE[,STAGE]", help="look at these stages only")
    add_json_flag(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Answer and return 0 for `same` and `clean`, else 1."""
    from sentinel.cli.output import emit
    from sentinel.core.report.render import triage_to_plain
    from sentinel.daemon.calibrations import of_baseline
    from sentinel.daemon.triaging import triage_paths
    from sentinel.errors import SettingsError

    if args.golden is None and (args.clean or args.map):
        raise SettingsError("--clean and --map need a GOLDEN to compare with")
    answer = triage_paths(
        args.target,
        args.golden,
        stages=args.stages.split(",") if args.stages else None,
        clean=tuple(args.clean) if args.clean else None,
        mapping=_mapping(args.map) if args.map else None,
        calibration=of_baseline(_bundle(args.baseline)),
    )
    emit(args, triage_to_plain(answer) or {}, lambda console: _print(console, answer))
    return 0 if answer.verdict in _FINE else 1


def _bundle(path: str | None) -> str | None:
    if path is None:
        return None
    from pathlib import Path

    from sentinel.errors import BaselineError
    from sentinel.storage.bundle import is_bundle

    if not (Path(path).is_file() and is_bundle(Path(path))):
        raise BaselineError(path, "is no baseline bundle; make one with sentinel baseline record")
    return path


def _mapping(path: str) -> Mapping[str, str]:
    import yaml

    from sentinel.errors import SettingsError

    try:
        with open(path, encoding="utf-8") as stream:  # noqa: PTH123
            found = yaml.safe_load(stream)
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise SettingsError(f"{path}: cannot be read as YAML or JSON: {error}") from error
    if not isinstance(found, dict) or not all(isinstance(word, str) for pair in found.items() for word in pair):
        raise SettingsError(f"{path}: a mapping of names to names is wanted, e.g. `decoder.layers: model.layers`")
    return found


def _print(console: Console, answer: Triage) -> None:
    from rich.table import Table

    console.print(f"{answer.verdict}: {_headline(answer)}", style="bold")
    if answer.comparable is not None:
        console.print(
            "comparable: "
            + ", ".join(f"{name} {_word(getattr(answer.comparable, name))}" for name in ("step", "rows", "weights"))
        )
    if answer.first is not None:
        table = Table(title=f"{answer.first.name}  {answer.first.position}", title_justify="left")
        for head in ("", "target", *(["golden"] if answer.first.golden else [])):
            table.add_column(head)
        for name, value in answer.first.target.items():
            golden = [str(answer.first.golden.get(name))] if answer.first.golden else []
            table.add_row(name, str(value), *golden)
        console.print(table)
    for suspect in answer.suspects:
        console.print(f"then: {_place(suspect)}: {suspect.why}")
    for side, names in (("target", answer.only_in_target), ("golden", answer.only_in_golden)):
        if names:
            more = f" and {len(names) - _SHOWN_NAMES} more" if len(names) > _SHOWN_NAMES else ""
            console.print(f"only in {side}: {', '.join(names[:_SHOWN_NAMES])}{more}")
    for note in answer.notes:
        console.print(f"note: {note}")


def _headline(answer: Triage) -> str:
    if answer.first is not None:
        return f"{_place(answer.first)}: {answer.first.why}"
    return f"{answer.compared} tensors looked at, ranks {', '.join(map(str, answer.ranks))}"


def _place(found: Divergence) -> str:
    return f"{found.stage}, {found.module} ({found.direction})"


def _word(answer: bool | None) -> str:
    return "unknown" if answer is None else ("agrees" if answer else "differs")
