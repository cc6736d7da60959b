# SPDX-License-Identifier: Apache-2.0
"""The configuration that a launch would have: verl's own defaults with the launch's overrides, as hydra composes them.

Only verl's YAML files and hydra are used, in a process of its own; verl and torch are not imported.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

DEFAULT_NAME = "ppo_trainer"
SECONDS = 60.0


class NotComposedError(Exception):
    """The configuration could not be composed; the text says why."""


def compose(overrides: tuple[str, ...], config_name: str = "") -> dict[str, Any]:
    """Return the composed configuration, nested.

    Raises:
        NotComposedError: verl or hydra is not here, or hydra refuses an override.
    """
    folder = config_folder()
    if folder is None:
        raise NotComposedError("verl is not installed here, so its defaults are not known; give --log")
    request = json.dumps({"folder": str(folder), "name": config_name or DEFAULT_NAME, "overrides": list(overrides)})
    command = [sys.executable, "-c", "from sentinel.sources.composed_config import answer; answer()"]
    root = str(Path(__file__).parents[2])
    try:
        done = subprocess.run(  # noqa: S603
            command, input=request, capture_output=True, text=True, timeout=SECONDS, check=False, cwd=root
        )
    except subprocess.TimeoutExpired as error:
        raise NotComposedError(f"hydra did not answer within {SECONDS:.0f} s") from error
    try:
        plain = json.loads(done.stdout.rpartition("\n\x00")[2])
    except ValueError:
        last = (done.stderr.strip() or "no answer").split("\n")[-1]
        raise NotComposedError(f"hydra could not compose it: {last}") from None
    if "error" in plain:
        raise NotComposedError(plain["error"])
    config: dict[str, Any] = plain["config"]
    return config


def config_folder() -> Path | None:
    """Return the folder of verl's own configuration files."""
    try:
        spec = importlib.util.find_spec("verl")
    except (ImportError, ValueError):
        return None
    for place in (spec.submodule_search_locations or ()) if spec else ():
        folder = Path(place) / "trainer" / "config"
        if folder.is_dir():
            return folder
    return None


def answer() -> None:
    """Compose what standard input asks for; the answer stands behind a zero byte. Called in a process of its own."""
    request = json.load(sys.stdin)
    try:
        plain = {"config": _composed(request)}
    except Exception as error:  # noqa: BLE001  # hydra and its resolvers raise what they please
        plain = {"error": f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else ''}"}
    sys.stdout.write("\n\x00" + json.dumps(plain, default=str))


def _composed(request: dict[str, Any]) -> Any:
    from hydra import compose as hydra_compose  # noqa: PLC0415  # only here is hydra needed
    from hydra import initialize_config_dir  # noqa: PLC0415
    from omegaconf import OmegaConf  # noqa: PLC0415
    from omegaconf.errors import OmegaConfBaseException  # noqa: PLC0415

    with initialize_config_dir(config_dir=request["folder"], version_base=None):
        config = hydra_compose(config_name=request["name"], overrides=request["overrides"])
    try:
        return OmegaConf.to_container(config, resolve=True)
    except OmegaConfBaseException:
        return OmegaConf.to_container(config, resolve=False)
