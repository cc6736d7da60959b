#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the rules of deploy/prometheus as a PrometheusRule; with --check says whether it is up to date.

python deploy/kubernetes/build_rules.py [--check]
"""

from __future__ import annotations

import sys
from pathlib import Path

import yaml

HERE = Path(__file__).parent
TARGET = HERE / "prometheus-operator/rules.yaml"
HEAD = "# Made by deploy/kubernetes/build_rules.py from deploy/prometheus/{recording,alerts}.yml.\n"


def text() -> str:
    """Content of the file."""
    rules = [
        yaml.safe_load((HERE.parent / f"prometheus/{name}.yml").read_text("utf-8")) for name in ("recording", "alerts")
    ]
    document = {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": {"name": "sentinel", "labels": {"release": "prometheus"}},
        "spec": {"groups": [group for file in rules for group in file["groups"]]},
    }
    return HEAD + yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=120)


def main() -> int:
    """Write, or check."""
    if "--check" not in sys.argv[1:]:
        TARGET.write_text(text(), encoding="utf-8")
        return 0
    if TARGET.read_text(encoding="utf-8") == text():
        return 0
    print(f"{TARGET.name} is not what build_rules.py makes; run it")
    return 1


if __name__ == "__main__":
    sys.exit(main())
