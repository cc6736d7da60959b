#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the dashboards as JSON files into grafana/dashboards; with --check says which of them are not up to date.

python grafana/build.py [--check]
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from boards import all_boards
from grafana_foundation_sdk.cog.encoder import JSONEncoder

FOLDER = Path(__file__).parent / "dashboards"
# Read by Grafana's Prometheus data source beside the fields of the published schema: what a mark says.
MARK_TEXTS = {
    "Incidents": {"titleFormat": "{{kind}} in {{stage}}", "textFormat": "{{run}}: {{incident}}"},
    "Dumps": {"titleFormat": "dump", "textFormat": "{{run}}"},
    "Restarts": {"titleFormat": "daemon restarted", "textFormat": "{{instance}}"},
}


def texts() -> dict[str, str]:
    """File name -> content."""
    made = {}
    for builder in all_boards():
        document = json.loads(json.dumps(builder.build(), cls=JSONEncoder))
        for annotation in document["annotations"]["list"]:
            annotation.update(MARK_TEXTS[annotation["name"]])
        made[f"{document['uid']}.json"] = json.dumps(document, indent=2, ensure_ascii=False, sort_keys=True) + "\n"
    return made


def main() -> int:
    """Write, or check."""
    made = texts()
    if "--check" not in sys.argv[1:]:
        for name, text in made.items():
            (FOLDER / name).write_text(text, encoding="utf-8")
        return 0
    there = {path.name: path.read_text(encoding="utf-8") for path in FOLDER.glob("*.json")}
    stale = sorted(name for name in {*made, *there} if made.get(name) != there.get(name))
    for name in stale:
        print(f"grafana/dashboards/{name} is not what grafana/build.py makes; run it")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
