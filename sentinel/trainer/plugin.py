# SPDX-License-Identifier: Apache-2.0
"""The entry point that verl imports in each of its processes (group `verl.plugins`, or VERL_USE_EXTERNAL_MODULES).

Importing it does nothing unless a run is named: SENTINEL_RUN, a `run:` line in the file of SENTINEL_CONFIG, or
SENTINEL_RECORD. SENTINEL_SEED_ALL=1 seeds the workers, named run or not. SENTINEL_DISABLED=1 switches everything off.
It is imported in the middle of `import verl`, so it imports no verl module and patches after `verl.utils.tracking` was
executed.
"""

from __future__ import annotations

import functools
import json
import os
import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from types import ModuleType

from sentinel.trainer.after_import import AfterImport
from sentinel.trainer.driver import Driver
from sentinel.trainer.fuse import Fuse, log
from sentinel.trainer.link import DaemonLink
from sentinel.trainer.orders import Order
from sentinel.trainer.recording import RecordingFile
from sentinel.trainer.seeding import SEEDING
from sentinel.trainer.session import Outlets, Session

_RUN_LINE = re.compile(r"^run:[ \t]*[\"']?([^\"'#\n]+?)[\"']?[ \t]*(?:#.*)?$", re.MULTILINE)


@dataclass(frozen=True)
class Wanted:
    """What the environment asks for."""

    run: str
    record: str
    orders_file: str
    config: dict[str, str] | None

    @property
    def anything(self) -> bool:
        """Whether there is anything to do in this process."""
        return bool(self.run or self.record or self.orders_file)


def wanted(environment: Mapping[str, str]) -> Wanted:
    """Read the environment; a file that cannot be read is said once and left out."""
    config = None
    path = environment.get("SENTINEL_CONFIG", "")
    if path:
        try:
            with open(path, encoding="utf-8") as file:
                config = {"path": os.path.abspath(path), "text": file.read()}
        except (OSError, UnicodeDecodeError) as error:
            log.warning("Sentinel: SENTINEL_CONFIG=%s cannot be read (%s): the defaults hold.", path, error)
    run = environment.get("SENTINEL_RUN", "").strip()
    if not run and config:
        line = _RUN_LINE.search(config["text"])
        run = line.group(1).strip() if line else ""
    return Wanted(run, environment.get("SENTINEL_RECORD", ""), environment.get("SENTINEL_ORDERS", ""), config)


def read_orders(path: str) -> list[Order]:
    """Read an order file: a list of orders, or an object with `orders`.

    Raises:
        ValueError, OSError: the file cannot be read as that.
    """
    with open(path, encoding="utf-8") as file:
        plain = json.load(file)
    orders = plain.get("orders", []) if isinstance(plain, dict) else plain
    return [Order.from_plain(order, number, exact=True) for number, order in enumerate(orders)]


def make_driver(want: Wanted) -> Driver:
    """Compose the session and its hooks. Opens nothing and connects to nothing yet."""
    orders: list[Order] = []
    if want.orders_file:
        try:
            orders = read_orders(want.orders_file)
        except (OSError, ValueError, AttributeError, TypeError) as error:
            log.warning("Sentinel: SENTINEL_ORDERS=%s is left out: %s", want.orders_file, error)
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

    def detach(self) -> None:
        """Take everything off again."""
        self.finder.remove()
        if self.driver is not None:
            self.driver.unhook()
            self.driver.session.close()


PLUGIN = Plugin(os.environ)
