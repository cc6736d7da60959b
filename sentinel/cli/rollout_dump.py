# SPDX-License-Identifier: Apache-2.0
"""`sentinel captures rollout`: the rollout engine's dump configuration, for vLLM-Ascend in eager mode, written and switched.

The rollout engine is no training worker: Sentinel cannot arm it from outside. vLLM-Ascend starts msprobe by itself when its
`additional_config` names a configuration (its msprobe guide, read; not run here), and msprobe looks at that file again.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sentinel.errors import SettingsError
from sentinel.sinks.msprobe_config import MsprobeSwitch

if TYPE_CHECKING:
    import argparse


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add what the verb is asked."""
    parser.add_argument("config", metavar="FILE", help="msprobe's config.json for the rollout engine")
    parser.add_argument("--dumps", metavar="DIR", default=None, help="where it dumps (default: beside FILE)")
    parser.add_argument(
        "--level", default="L0", choices=("L0", "L1", "mix"), help="modules, operations or both (default L0)"
    )
    parser.add_argument(
        "--module", action="append", default=[], metavar="PATH", help="narrow to this module; may be repeated"
    )
    parser.add_argument("--switch", choices=("on", "off"), help="switch a file that a running engine was started with")


def document(args: argparse.Namespace) -> dict[str, Any]:
    """Write or switch the file, and return what to do with it.

    Raises:
        SettingsError: the file cannot be written, or not be switched.
    """
    path = Path(args.config).absolute()
    dumps = Path(args.dumps).absolute() if args.dumps else path.with_suffix(".dumps")
    if args.switch == "on":
        MsprobeSwitch(path).on(dumps, level=args.level, modules=tuple(args.module))
    elif args.switch == "off":
        MsprobeSwitch(path).off()
    else:
        _write(path, dumps, args.level)
    return {
        "config": str(path),
        "dumps": str(dumps),
        "switched": args.switch or "off",
        "overrides": [
            "actor_rollout_ref.rollout.enforce_eager=True",
            f"+actor_rollout_ref.rollout.engine_kwargs.vllm.additional_config.dump_config_path={path}",
        ],
        "how": (
            f"Start the run with these overrides; nothing is dumped until `sentinel captures rollout {path} --switch on`, and every "
            "forward pass of the engine is from then on, one step folder a token round, until `--switch off`. Take the step's "
            "rollout file (trainer.rollout_data_dir/<step>.jsonl) with it, and `sentinel triage` two engines' dumps of the same prompts."
        ),
    }


def _write(path: Path, dumps: Path, level: str) -> None:
    config = {
        "task": "statistics",
        "dump_path": str(dumps),
        "rank": [],
        "step": [],
        "level": level,
        "dump_enable": False,
        "statistics": {"scope": [], "list": [], "data_mode": ["all"], "summary_mode": "statistics"},
    }
    if path.exists():
        raise SettingsError(f"{path}: is there already; switch it with --switch on, or name another")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(config, indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise SettingsError(f"{path}: {error.strerror}") from error
