# SPDX-License-Identifier: Apache-2.0
"""What the environment of a training process asks Sentinel for."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass

from sentinel.trainer.fuse import log
from sentinel.trainer.orders import Order

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


def read_orders_of(want: Wanted) -> list[Order]:
    """Read the orders of SENTINEL_ORDERS; a file that cannot be read is said once and left out."""
    if not want.orders_file:
        return []
    try:
        return read_orders(want.orders_file)
    except (OSError, ValueError, AttributeError, TypeError) as error:
        log.warning("Sentinel: SENTINEL_ORDERS=%s is left out: %s", want.orders_file, error)
        return []
