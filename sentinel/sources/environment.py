# SPDX-License-Identifier: Apache-2.0
"""Versions, variables and devices of this process, and of the workers of a run that said so themselves."""

from __future__ import annotations

import os
from collections.abc import Mapping

from sentinel.facts import process_facts
from sentinel.facts.variables import variable_facts


def own_facts(exports: Mapping[str, str] | None = None) -> dict[str, object]:
    """Return the facts of this process, with the variables that a launch script exports on top."""
    facts = process_facts()
    facts["variables"] = variable_facts({**os.environ, **(exports or {})})
    facts.pop("host", None)
    return facts
