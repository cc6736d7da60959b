# SPDX-License-Identifier: Apache-2.0
"""The metric catalogue that ships with Sentinel, read from `sentinel/data/metrics.toml`."""

from __future__ import annotations

import sys
from importlib import resources

from sentinel.core.catalogue import Catalogue

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


def load_catalogue() -> Catalogue:
    """Return what metric keys mean."""
    data = resources.files("sentinel").joinpath("data")
    metrics, presets = (
        tomllib.loads(data.joinpath(name).read_text(encoding="utf-8")) for name in ("metrics.toml", "presets.toml")
    )
    return Catalogue.from_mapping(metrics, presets)
