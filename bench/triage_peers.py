# SPDX-License-Identifier: Apache-2.0
"""What others say of the fault sets' pairs: msprobe's comparison and its first-difference analysis, in process, and the simple noise rule.

The rule learns from one clean pair of other weights, which every pair of a fault set names.
"""

from __future__ import annotations

from pathlib import Path

from bench.triage_score import Answer, Case, Method
from sentinel.cli import triage_peers


def _asked(method: triage_peers.Method) -> Method:
    def answer(case: Case, corpus: Path) -> Answer:
        return Answer(*method(case.pair, corpus))

    return answer


PEERS: dict[str, Method] = {
    "msprobe compare": _asked(triage_peers.first_row),
    "msprobe compare -da": _asked(triage_peers.first_difference),
    "three times the noise": _asked(triage_peers.NoiseRule()),
}
