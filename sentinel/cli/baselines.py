# SPDX-License-Identifier: Apache-2.0
"""`sentinel baseline record | show | add | diff`."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sentinel.cli.output import add_json_flag, emit, note
from sentinel.cli.progress import Progress
from sentinel.errors import BaselineError, SettingsError

if TYPE_CHECKING:
    import argparse

    from rich.console import Console

    from sentinel.storage.manifest import Manifest


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the verbs of this group."""
    group = subparsers.add_parser("baseline", help="make and look at portable baseline bundles")
    verbs = group.add_subparsers(title="verbs", metavar="VERB", required=True)

    record = verbs.add_parser("record", help="make a bundle from one or several reference runs")
    record.add_argument(
        "sources", nargs="+", metavar="SOURCE", help="metric file, recording or bundle; several = seeds"
    )
    record.add_argument("-o", "--output", required=True, type=Path, metavar="BUNDLE")
    record.add_argument("--name", help="name of the baseline (default: of the first source)")
    _add_material(record)
    record.set_defaults(run=record_bundle)

    show = verbs.add_parser("show", help="what is in a bundle or recording")
    show.add_argument("bundle", metavar="BUNDLE")
    add_json_flag(show)
    show.set_defaults(run=show_bundle)

    add = verbs.add_parser("add", help="add seeds, twins or golden dumps to a bundle")
    add.add_argument("bundle", type=Path, metavar="BUNDLE")
    add.add_argument("sources", nargs="*", metavar="SOURCE")
    _add_material(add)
    add.set_defaults(run=add_to_bundle)

    diff = verbs.add_parser("diff", help="in what two bundles differ (exit 1 if they do)")
    diff.add_argument("a", metavar="A")
    diff.add_argument("b", metavar="B")
    add_json_flag(diff)
    diff.set_defaults(run=diff_bundles)


def _add_material(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--twin",
        action="append",
        default=[],
        metavar="FILE",
        help="clean repeat of a reference run on the same rollouts",
    )
    parser.add_argument(
        "--dumps",
        action="append",
        default=[],
        type=Path,
        metavar="DIR",
        help="golden dumps, step_<N>/<stage>/step0/rank<r>",
    )
    parser.add_argument(
        "--twin-dumps",
        action="append",
        default=[],
        type=Path,
        metavar="DIR",
        help="dumps of a twin at the same steps: show how far healthy machines part, and are not kept themselves",
    )
    parser.add_argument(
        "--rollouts",
        action="append",
        default=[],
        type=Path,
        metavar="DIR",
        help="rollout text or recording, packed whole",
    )
    parser.add_argument("--rollout-rows", type=_rows, metavar="N", help="only the first N rows of each step's text")
    parser.add_argument("--model", type=Path, metavar="DIR", help="model whose files are hashed")
    parser.add_argument("--config", type=Path, metavar="FILE", help="configuration of the runs (YAML or JSON)")
    parser.add_argument(
        "--fingerprint",
        type=Path,
        metavar="FILE",
        help="of `sentinel fingerprint`: versions, configuration, data order",
    )
    add_json_flag(parser)


def _rows(text: str) -> int:
    rows = int(text)
    if rows < 1:
        raise ValueError(text)
    return rows


def record_bundle(args: argparse.Namespace) -> int:
    """Write a new bundle and print its manifest."""
    from sentinel.cli.baseline_making import gather_all, named_rollouts, write

    with _scratch(args.output) as scratch, Progress() as progress:
        materials = gather_all(args, Path(scratch), progress.says)
        rollouts = named_rollouts(args, materials, Path(scratch))
        manifest = write(args, args.output, materials, progress.says, rollouts=rollouts)
    _print_manifest(args, _shown(manifest))
    return 0


def add_to_bundle(args: argparse.Namespace) -> int:
    """Add to a bundle, in place, and print the new manifest."""
    from sentinel.cli.baseline_making import gather_all, named_rollouts, write
    from sentinel.daemon.references import gather
    from sentinel.storage.bundle import is_bundle

    if not (args.sources or args.twin or args.dumps or args.twin_dumps or args.rollouts or args.model or args.config):
        raise SettingsError(
            "baseline add: nothing to add; name a SOURCE, --twin, --dumps, --twin-dumps, --rollouts, --model or --config"
        )
    if args.bundle.is_file() and not is_bundle(args.bundle):
        raise BaselineError(
            args.bundle, "is no bundle; close it into one first (sentinel baseline record ... -o BUNDLE)"
        )
    with _scratch(args.bundle) as scratch, Progress() as progress:
        progress.says(f"opening {args.bundle}")
        base = gather(args.bundle, Path(scratch) / "base")
        materials = [base, *gather_all(args, Path(scratch), progress.says)]
        rollouts = named_rollouts(args, materials, Path(scratch))
        manifest = write(args, args.bundle, materials, progress.says, rollouts=rollouts, created=base.created)
    _print_manifest(args, _shown(manifest))
    return 0


def _scratch(bundle: Path) -> tempfile.TemporaryDirectory[str]:
    """Return a folder for what is unpacked on the way; beside the bundle, where there is room for it."""
    if not bundle.absolute().parent.is_dir():
        raise BaselineError(bundle, "its folder does not exist; make it first")
    return tempfile.TemporaryDirectory(prefix=".sentinel-", dir=bundle.absolute().parent)


def show_bundle(args: argparse.Namespace) -> int:
    """Print the manifest of a bundle, or what the manifest of a recording would be."""
    _print_manifest(args, _manifest_of(args.bundle))
    return 0


def diff_bundles(args: argparse.Namespace) -> int:
    """Print in what two bundles differ."""
    from sentinel.cli.baseline_diff import compare, print_difference
    from sentinel.daemon.references import gather

    with tempfile.TemporaryDirectory(prefix="sentinel-baseline-") as scratch, Progress() as progress:
        progress.says(f"comparing {args.a} with {args.b}")
        difference = compare(gather(args.a, Path(scratch) / "a"), gather(args.b, Path(scratch) / "b"))
    emit(args, difference, lambda console: print_difference(console, args.a, args.b, difference))
    return 0 if difference["same"] else 1


def _manifest_of(path: str) -> dict[str, Any]:
    from sentinel.daemon.references import gather
    from sentinel.storage import manifest as manifests
    from sentinel.storage import metrics_table
    from sentinel.storage.bundle import is_bundle, open_bundle

    if Path(path).is_file() and is_bundle(Path(path)):
        return open_bundle(path).manifest
    with Progress() as progress:
        progress.says(f"reading {path}")
        material = gather(path, Path())  # only a bundle is unpacked
    for text in material.notes:
        note(text)
    return _shown(
        manifests.Manifest(
            format=manifests.FORMAT,
            name=material.name,
            created=material.created,
            made="",
            runs=[manifests.describe_run(run) for run in material.runs],
            metrics=list(metrics_table.metric_keys([run.readings for run in material.runs])),
            rollout_steps=[],
            dumps=manifests.describe_dumps(material.dumps),
            fingerprint=dict(material.fingerprint) if material.fingerprint is not None else None,
            parts={},
        )
    )


def _shown(manifest: Manifest) -> dict[str, Any]:
    import msgspec

    plain: dict[str, Any] = msgspec.to_builtins(manifest)
    del plain["parts"]
    return plain


def _print_manifest(args: argparse.Namespace, manifest: dict[str, Any]) -> None:
    emit(args, manifest, lambda console: _print_text(console, manifest))


def _print_text(console: Console, manifest: dict[str, Any]) -> None:
    from rich.table import Table

    console.print(f"{manifest['name']}  (recorded {manifest['created']}, bundle format {manifest['format']})")
    table = Table("source", "kind", "steps", "from", "to", "attempts", box=None, pad_edge=False)
    for run in manifest["runs"]:
        shown = (run["steps"], run["first_step"], run["last_step"], run["attempts"])
        table.add_row(run["source"], "twin" if run["twin"] else "seed", *("-" if v is None else str(v) for v in shown))
    console.print(table)
    console.print(f"metrics: {len(manifest['metrics'])}")
    console.print(f"rollout steps: {_ranges(manifest['rollout_steps'])}")
    if manifest["dumps"]:
        dumps = Table("golden dump of step", "stage", "ranks", box=None, pad_edge=False)
        for dump in manifest["dumps"]:
            dumps.add_row(str(dump["step"]), dump["stage"], _ranges(dump["ranks"]))
        console.print(dumps)
    else:
        console.print("golden dumps: none")
    known = manifest["fingerprint"] or {}
    console.print(f"fingerprint: {', '.join(sorted(known)) or 'none'}")
    for line in manifest["made"].splitlines():
        console.print(f"made by: {line}")


def _ranges(numbers: list[int]) -> str:
    """Return sorted numbers in short: 1-3, 5."""
    spans: list[list[int]] = []
    for number in numbers:
        if spans and number == spans[-1][1] + 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    return ", ".join(str(low) if low == high else f"{low}-{high}" for low, high in spans) or "none"
