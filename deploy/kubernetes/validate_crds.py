#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the custom resources of this folder against the definitions of their operators, strictly.

    kubectl kustomize deploy/kubernetes/prometheus-operator | python deploy/kubernetes/validate_crds.py FOLDER...

FOLDER holds CustomResourceDefinitions: `ray-operator/config/crd/bases` of ray-project/kuberay,
`example/prometheus-operator-crd` of prometheus-operator/prometheus-operator. A key that is not defined is a fault; rules in
CEL are not evaluated. Other kinds are passed over: `kubernetes-validate --strict` knows them.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import jsonschema
import yaml


def strict(schema: Any) -> Any:
    """The schema with unknown keys refused, and numbers with units where Kubernetes takes both."""
    if isinstance(schema, list):
        return [strict(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    if schema.get("x-kubernetes-int-or-string"):
        return {"type": ["integer", "string"]}
    made = {key: strict(value) for key, value in schema.items()}
    if "properties" in schema and not schema.get("x-kubernetes-preserve-unknown-fields"):
        made.setdefault("additionalProperties", False)
    return made


def main() -> int:
    """Print every fault; 1 when there is one or nothing was checked."""
    schemas = {}
    for path in (file for folder in sys.argv[1:] for file in sorted(Path(folder).glob("*.yaml"))):
        for definition in yaml.load_all(path.read_text("utf-8"), Loader=yaml.CSafeLoader):
            if definition and definition.get("kind") == "CustomResourceDefinition":
                spec = definition["spec"]
                for version in spec["versions"]:
                    schema = strict(version["schema"]["openAPIV3Schema"])
                    schema["properties"]["metadata"] = {"type": "object"}
                    schemas[f"{spec['group']}/{version['name']}", spec["names"]["kind"]] = schema
    faults, checked = 0, 0
    for document in yaml.safe_load_all(sys.stdin):
        schema = schemas.get((document["apiVersion"], document["kind"]))
        if schema is None:
            continue
        checked += 1
        for error in jsonschema.Draft7Validator(schema).iter_errors(document):
            faults += 1
            print(
                f"{document['kind']} {document['metadata']['name']}: {'/'.join(map(str, error.absolute_path))}: {error.message[:200]}"
            )
    print(f"{checked} custom resources, {faults} faults")
    return 1 if faults or not checked else 0


if __name__ == "__main__":
    sys.exit(main())
