#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the dashboards against the JSON schemas that Grafana publishes beside its foundation SDK.

    python grafana/validate.py FOLDER

FOLDER is the directory `jsonschema` of a checkout of grafana/grafana-foundation-sdk, branch v11.6.x+cog-v0.0.x. Each
panel is checked by itself, so that a fault is named where it is. Three things are not counted: defaults that the SDK
leaves out though the schema of a panel's options asks for them; the texts of annotations, which are not in the schema
(build.py: MARK_TEXTS); and the type of an override's values, which may be anything where the schema says object.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import jsonschema
from build import FOLDER, MARK_TEXTS

OPTIONS_OF = {"timeseries", "stat", "table", "bargauge", "statetimeline"}


def main() -> int:
    """Print every fault; 1 when there is one."""
    schemas = {
        path.name.partition(".")[0]: json.loads(path.read_text())
        for path in Path(sys.argv[1]).glob("*.jsonschema.json")
    }
    faults: list[str] = []
    panels = 0
    for path in sorted(FOLDER.glob("*.json")):
        document = json.loads(path.read_text(encoding="utf-8"))
        for annotation in document["annotations"]["list"]:
            for key in next(iter(MARK_TEXTS.values())):
                annotation.pop(key, None)
        for panel in document["panels"]:
            panels += 1
            where = f"{path.name}: {panel.get('title')}"
            kind = "RowPanel" if panel["type"] == "row" else "Panel"
            faults += errors(schemas["dashboard"], kind, panel, where)
            name = panel["type"].replace("-", "")
            if name in OPTIONS_OF:
                faults += errors(schemas[name], "Options", panel.get("options", {}), f"{where}: options")
            for target in panel.get("targets", []):
                faults += errors(schemas["prometheus"], "dataquery", target, f"{where}: query {target.get('refId')}")
        faults += errors(schemas["dashboard"], "Dashboard", document | {"panels": []}, path.name)
    print(*faults, f"{panels} panels, {len(faults)} faults", sep="\n")
    return 1 if faults else 0


def errors(schema: dict[str, Any], definition: str, value: object, where: str) -> list[str]:
    """One line for each fault, but for defaults that are left out."""
    about = {**schema, "$ref": f"#/definitions/{definition}"}
    found = jsonschema.Draft7Validator(about).iter_errors(value)
    return [
        f"{where}: {'/'.join(map(str, error.absolute_path))}: {error.message[:200]}"
        for error in found
        if not (error.validator == "required" and "options" in where) and not _is_override_value(error)
    ]


def _is_override_value(error: jsonschema.ValidationError) -> bool:
    path = list(error.absolute_path)
    return "overrides" in path and path[-1] in ("options", "value") and error.validator == "type"


if __name__ == "__main__":
    sys.exit(main())
