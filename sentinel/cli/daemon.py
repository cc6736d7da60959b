# SPDX-License-Identifier: Apache-2.0
"""Verbs of the daemon: up, status, down, top, attach."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the verbs."""
