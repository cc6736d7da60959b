# SPDX-License-Identifier: Apache-2.0
"""The entry point that verl imports in each of its processes (group `verl.plugins`, or VERL_USE_EXTERNAL_MODULES).

Importing it does nothing unless a run is named: SENTINEL_RUN, a `run:` line in the file of SENTINEL_CONFIG, or
SENTINEL_RECORD. SENTINEL_SEED_ALL=1 seeds the workers, named run or not. SENTINEL_DISABLED=1 switches everything off.
It is imported in the middle of `import verl`, so it imports no verl module and patches after `verl.utils.tracking` was
executed.
"""

from __future__ import annotations

import functools
import os
import uuid
from collections.abc import Callable, Mapping
from types import ModuleType

from sentinel.trainer import token_gaps
from sentinel.trainer.after_import import AfterImport
from sentinel.trainer.driver import Driver
from sentinel.trainer.fuse import Fuse
from sentinel.trainer.link import DaemonLink
from sentinel.trainer.recording import RecordingFile
from sentinel.trainer.seeding import SEEDING
from sentinel.trainer.session import Outlets, Session
from sentinel.trainer.wanted import Wanted, read_orders_of, wanted


def make_driver(want: Wanted) -> Driver:
    """Compose the session and its hooks. Opens nothing and connects to nothing yet."""
    orders = read_orders_of(want)
    config = want.config or {}
    outlets = Outlets(
        daemon=DaemonLink(want.run, uuid.uuid4().hex, config.get("text"), config.get("path")) if want.run else None,
        recording=RecordingFile(os.path.abspath(want.record)) if want.record else None,
    )
    base = os.path.abspath(want.record or want.orders_file or os.path.join(os.path.expanduser("~"), ".sentinel", "run"))
    session = Session(want.run or os.path.basename(base), outlets, f"{base}.dumps", orders)
    return Driver(session, record_schedule=bool(want.record and not want.orders_file), config=want.config)


class Plugin:
    """The hooks of this process, made when verl's tracking is imported; at most one session a process."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self.finder = AfterImport()
        self.driver: Driver | None = None
        self._undo: list[Callable[[], None]] = []
        self._fuse = Fuse("plugin", allowed=1)
        if environment.get("SENTINEL_DISABLED", "") not in ("", "0"):
            return
        self._fuse.run(functools.partial(SEEDING.prepare, environment, self.finder), None)
        self._want = self._fuse.run(functools.partial(wanted, environment), None)
        if self._want is not None and self._want.anything:
            self.finder.watch("verl.utils.tracking", self._hook)

    def _hook(self, module: ModuleType) -> None:
        self._fuse.run(functools.partial(self._hook_now, module), None)

    def _hook_now(self, module: ModuleType) -> None:
        if self._want is not None:
            self.driver = make_driver(self._want)
            self.driver.hook_tracking(module)
            self.finder.watch("verl.utils.debug.metrics", functools.partial(self._hook_gaps, self.driver.session))

    def _hook_gaps(self, session: Session, module: ModuleType) -> None:
        self._undo.append(token_gaps.hook(session, module))

    def detach(self) -> None:
        """Take everything off again."""
        self.finder.remove()
        while self._undo:
            self._undo.pop()()
        if self.driver is not None:
            self.driver.unhook()
            self.driver.session.close()


PLUGIN = Plugin(os.environ)
