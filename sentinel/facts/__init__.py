# SPDX-License-Identifier: Apache-2.0
"""What a process can say of itself: versions, environment, devices, seeds. Standard library only; imports nothing heavy.

The same facts come from a launcher, from `sentinel fingerprint` and from every worker of a live run, whose
environments differ.
"""

from __future__ import annotations

import os
import platform
import socket
from collections.abc import Mapping

from sentinel.facts.hardware import hardware_facts
from sentinel.facts.packages import package_facts
from sentinel.facts.variables import variable_facts


def process_facts(environment: Mapping[str, str] | None = None) -> dict[str, object]:
    """Return the facts of this process.

    Returns:
        `{"python", "host", "packages": {name: {"version", "commit"?}}, "variables": {name: text}, "hardware": {...}}`.
    """
    given = os.environ if environment is None else environment
    return {
        "python": platform.python_version(),
        "host": socket.gethostname(),
        "packages": package_facts(),
        "variables": variable_facts(given),
        "hardware": hardware_facts(given),
    }
