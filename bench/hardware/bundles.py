# SPDX-License-Identifier: Apache-2.0
"""The H200's bundles of this repository, and the rollouts in them."""

from __future__ import annotations

from pathlib import Path

from sentinel.storage.bundle import open_bundle

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "h200"


def rollouts(bundle: str, folder: Path) -> Path:
    """The folder that verl's replay of this bundle reads; its rollouts are laid in `folder` the first time."""
    if not folder.exists():
        open_bundle(EXAMPLES / f"{bundle}.sentinel").extract_rollouts(folder)
    return next(folder.rglob("GBS*")).parent.parent
