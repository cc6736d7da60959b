# SPDX-License-Identifier: Apache-2.0
"""Where things lie below the folder of a demo, and how such a folder is taken."""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from sentinel.errors import SentinelError

MARKER = ".sentinel-demo"
NEVER_IN_A_PATH = re.compile(r"[^a-zA-Z0-9_.:/-]")


class DemoError(SentinelError):
    """The demo cannot be run here or there."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Places:
    """Where things lie below the folder of the demo."""

    root: Path

    @property
    def assets(self) -> Path:
        """Model and prompts; kept from demo to demo."""
        return self.root / "assets"

    @property
    def runs(self) -> Path:
        """One folder a verl run."""
        return self.root / "runs"

    @property
    def rollouts(self) -> Path:
        """The reference run's rollouts, as verl recorded them."""
        return self.root / "rollouts"

    @property
    def recordings(self) -> Path:
        """What Sentinel recorded of reference and twin, golden dumps included."""
        return self.root / "recordings"

    @property
    def bundle(self) -> Path:
        """The baseline bundle."""
        return self.root / "baseline.sentinel"

    @property
    def settings(self) -> Path:
        """Sentinel's settings for the watched runs."""
        return self.root / "sentinel.yaml"

    @property
    def home(self) -> Path:
        """Sentinel's home: journal, incidents, dumps."""
        return self.root / "home"


def claim(root: Path) -> Places:
    """Take `root` for a demo: make it, or clear what an earlier demo left there.

    Raises:
        DemoError: the path holds characters that msprobe refuses, or the folder holds something else.
    """
    root = root.expanduser().absolute()
    refused = NEVER_IN_A_PATH.search(str(root))
    if refused:
        raise DemoError(
            f"--out {root}: msprobe writes into no path with {refused.group()!r} in it; choose another folder"
        )
    marker = root / MARKER
    if root.exists() and not marker.is_file() and (not root.is_dir() or any(root.iterdir())):
        raise DemoError(f"--out {root}: exists and was not made by `sentinel demo`; choose another folder or empty it")
    places = Places(root=root)
    for old in (places.runs, places.rollouts, places.recordings, places.home):
        shutil.rmtree(old, ignore_errors=True)
    for old in (places.bundle, places.settings):
        old.unlink(missing_ok=True)
    try:
        places.runs.mkdir(parents=True)
        marker.write_text("made by `sentinel demo`; cleared by the next one\n", encoding="utf-8")
    except OSError as error:
        raise DemoError(f"--out {root}: cannot be written ({error.strerror})") from error
    return places
