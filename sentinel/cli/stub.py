# SPDX-License-Identifier: Apache-2.0
"""`sentinel stub record` and `replay`: the overrides that make verl record its rollouts, or train on recorded ones."""

from __future__ import annotations

import os
import shutil
import tempfile
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sentinel.cli import FOUND, OK, output
from sentinel.errors import BaselineError, SettingsError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

    from rich.console import Console

    from sentinel.core.rollout.stub import Setting, StubPlan
    from sentinel.records import RolloutRecording

DUMP_DIR = "sentinel-rollouts"
_MOST_STEPS = 100_000


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the verbs."""
    parser = subparsers.add_parser("stub", help="record rollouts on one side, train on them on the other")
    verbs = parser.add_subparsers(title="verbs", metavar="VERB", required=True)
    for name, text in (
        ("record", "the overrides that make a run record its rollouts (the GPU side)"),
        ("replay", "the overrides that make a run train on recorded rollouts, checked beforehand (the NPU side)"),
    ):
        verb = verbs.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".")
        verb.add_argument(
            "--launch", metavar="SCRIPT", type=Path, help="launch script: names, sizes and steps are read there"
        )
        verb.add_argument("--trainer", choices=("v0", "v1", "async"), help="default: as the launch script or verl says")
        verb.add_argument("--steps", metavar="LIST", help="e.g. 1-20 or 1,2,5 (default: all)")
        verb.add_argument("--dump-dir", metavar="DIR", type=Path, help=f"of the recording (default: {DUMP_DIR})")
        output.add_json_flag(verb)
        verb.set_defaults(run=run_stub, action=name)
        if name == "replay":
            verb.add_argument(
                "--from",
                dest="source",
                metavar="BUNDLE|DIR",
                type=Path,
                help="baseline bundle, or dump_dir that was recorded",
            )
            verb.add_argument(
                "--into",
                metavar="DIR",
                type=Path,
                help="lay the recording out there, under the names that the run looks for",
            )


def run_stub(args: argparse.Namespace) -> int:
    """Print the plan; 1 unless ready."""
    from sentinel.core.rollout import stub

    steps = parse_steps(args.steps) if args.steps else ()
    setting, config = _setting(args)
    if args.action == "record":
        folder = (args.dump_dir or Path(DUMP_DIR)).absolute()
        there = _recordings(folder) if folder.is_dir() else []
        plan = stub.record(setting, str(folder), steps or _all_steps(config), there)
    else:
        plan = _replay(args, setting, steps)
    document = to_plain(plan)
    output.emit(args, document, lambda console: _show(console, plan))
    return OK if plan.ready else FOUND


def parse_steps(text: str) -> tuple[int, ...]:
    """Read `1-20,25`.

    Raises:
        SettingsError: it is none.
    """
    steps: list[int] = []
    for part in text.replace("[", "").replace("]", "").split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()):
            raise SettingsError(f"--steps {text!r}: a list like 1-20 or 1,2,5 is wanted")
        end = int(last) if dash else int(first)
        if end - int(first) > _MOST_STEPS or end < int(first) or not int(first):
            raise SettingsError(f"--steps {text!r}: from a step above 0 up to a later one, at most {_MOST_STEPS} steps")
        steps += range(int(first), end + 1)
    return tuple(sorted(set(steps)))


def to_plain(plan: StubPlan) -> dict[str, Any]:
    """The document of `sentinel stub --json`."""
    found = plan.recording
    return {
        "action": plan.action,
        "verl": plan.verl,
        "trainer": plan.trainer,
        "overrides": list(plan.overrides),
        "recording": found
        and {
            "path": found.path,
            "steps": list(found.steps),
            "missing": list(plan.missing),
            "bytes": found.bytes,
            "layout": found.layout,
        },
        "ready": plan.ready,
        "problems": list(plan.problems),
    }


# --------------------------------------------------------------------------- what is known


def _setting(args: argparse.Namespace) -> tuple[Setting, Mapping[str, Any]]:
    """What is known of verl and the run, and the run's configuration (empty where unknown)."""
    from sentinel.core.rollout.place import place_of
    from sentinel.core.rollout.stub import Setting

    defaults = _defaults()
    config: Mapping[str, Any] = {}
    why = "give --launch SCRIPT"
    if args.launch is not None:
        from sentinel.sources.run_config import config_facts

        facts: dict[str, Any] = dict(config_facts(launch=args.launch))
        config = facts.get("effective") or {}
        reasons = facts.get("why") or {}
        why = reasons.get("effective") or reasons.get("explicit") or "the launch does not say names and sizes"
    skip = (config or defaults).get("skip")
    data = config.get("data") or {}
    setting = Setting(
        verl=_verl(),
        sections=tuple(name for name, part in skip.items() if isinstance(part, dict)) if isinstance(skip, dict) else (),
        trainer=args.trainer or _trainer(config or defaults, args.launch),
        place=place_of(config),
        why_no_place=why,
        skip=skip if config and isinstance(skip, dict) else None,
        shuffled=data.get("shuffle") if isinstance(data.get("shuffle"), bool) else None,
    )
    return setting, config


def _defaults() -> Mapping[str, Any]:
    """The configuration of the installed verl without any override; empty where there is none."""
    import yaml

    from sentinel.sources.composed_config import config_folder

    folder = config_folder()
    if folder is None:
        return {}
    try:
        found = yaml.safe_load((folder / "ppo_trainer.yaml").read_text(encoding="utf-8"))
    except (OSError, yaml.YAMLError):
        return {}
    return found if isinstance(found, dict) else {}


def _verl() -> str | None:
    try:
        return metadata.version("verl")
    except metadata.PackageNotFoundError:
        return None


def _trainer(config: Mapping[str, Any], launch: Path | None) -> str:
    """The trainer that a launch runs: the fully async one by its module, V1 by trainer.use_v1."""
    if (
        launch is not None
        and launch.is_file()
        and "fully_async" in launch.read_text(encoding="utf-8", errors="replace")
    ):
        return "async"
    use_v1 = (config.get("trainer") or {}).get("use_v1")
    return "v0" if use_v1 is False or str(use_v1).lower() == "false" else "v1"


def _all_steps(config: Mapping[str, Any]) -> tuple[int, ...]:
    total = str((config.get("trainer") or {}).get("total_training_steps"))
    return tuple(range(1, int(total) + 1)) if total.isdecimal() and int(total) <= _MOST_STEPS else ()


# --------------------------------------------------------------------------- the recording


def _replay(args: argparse.Namespace, setting: Setting, steps: tuple[int, ...]) -> StubPlan:
    from sentinel.core.rollout import stub
    from sentinel.storage.bundle import is_bundle

    source = args.source or args.dump_dir or Path(DUMP_DIR)
    if not source.exists():
        raise BaselineError(source, "no such bundle or folder; --from BUNDLE or the dump_dir that was recorded")
    if source.is_file() and not is_bundle(source):
        raise BaselineError(source, "is no baseline bundle; --from takes one, or the dump_dir that was recorded")
    folder = source.absolute()
    if source.is_file():
        folder = (args.into or Path(DUMP_DIR)).absolute()
        _unpack(source, folder, setting)
    elif args.into is not None:
        folder = args.into.absolute()
        _lay_out(source, folder, setting)
    return stub.replay(setting, str(folder), steps, _recordings(folder))


def _recordings(folder: Path) -> list[RolloutRecording]:
    from sentinel.sources.rollout_recording import recordings

    return recordings(folder)


def _unpack(bundle: Path, folder: Path, setting: Setting) -> None:
    """Unpack a bundle's rollouts, whose hashes are checked on the way, under the names that the run looks for."""
    from sentinel.storage.bundle import open_bundle

    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".sentinel_rollouts_") as scratch:
        found = open_bundle(bundle).extract_rollouts(Path(scratch))
        if found is None or not _recordings(found):
            raise BaselineError(bundle, "holds no recording; `sentinel baseline record --rollouts DUMP_DIR` packs one")
        _lay_out(found, folder, setting)


def _lay_out(source: Path, folder: Path, setting: Setting) -> None:
    """Put recordings where the run looks: hard links, or copies where the file system has none. What is there stays."""
    place, found = setting.place, _recordings(source)
    fitting = [each for each in found if place is not None and each.shape == place.shape]
    exact = [each for each in fitting if place is not None and each.names == place.names]
    if not exact and len(fitting) > 1:
        names = ", ".join(each.names for each in fitting)
        raise BaselineError(
            source, f"holds several recordings of this shape ({names}); name one with --from {source}/NAME"
        )
    for each in exact or fitting or found:
        names = place.names if place is not None and fitting else each.names
        target = folder / names / each.shape
        if target.resolve() != Path(each.path).resolve():
            shutil.copytree(each.path, target, copy_function=_linked, dirs_exist_ok=True)


def _linked(source: str, target: str) -> str:
    if os.path.exists(target):  # noqa: PTH110  # the form that copytree calls
        return target
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)
    return target


def _show(console: Console, plan: StubPlan) -> None:
    from sentinel.core.rollout.stub import listed

    console.print(
        f"{plan.action}: {'ready' if plan.ready else 'NOT ready'} (verl {plan.verl or 'not installed'}, {plan.trainer} trainer)",
        style="green" if plan.ready else "bold red",
    )
    if plan.recording is not None:
        console.print(
            f"recording: {plan.recording.path}, steps {listed(plan.recording.steps) or 'none'}, {plan.recording.bytes / 1e6:.1f} MB"
        )
    for problem in plan.problems:
        console.print(f"- {problem}", style="red")
    console.print("overrides:")
    for override in plan.overrides:
        console.print(f"  {override}")
    if plan.action == "record":
        console.print("afterwards: sentinel baseline record RECORDING -o BUNDLE --rollouts DUMP_DIR")
    elif plan.ready:
        console.print(
            "the daemon checks at each step that it is really replayed; `sentinel preflight --log LOG` afterwards"
        )
