# SPDX-License-Identifier: Apache-2.0
"""What the baseline expects of a step, and how far the step is from it, in tolerances.

`learn` turns reference runs into arrays; `regime` tells a replayed from a free run; `replayed` pairs step by step;
`free` holds bands learned from seeds.
"""

from sentinel.core.compare.free import FreeBands, learn_bands
from sentinel.core.compare.learn import Baseline, learn
from sentinel.core.compare.look import Look, blank, free_look, replayed_look, unbet, without
from sentinel.core.compare.regime import Recognition, recognise
from sentinel.core.compare.replayed import Pairing, learn_pairing

__all__ = [
    "Baseline",
    "FreeBands",
    "Look",
    "Pairing",
    "Recognition",
    "blank",
    "free_look",
    "learn",
    "learn_bands",
    "learn_pairing",
    "recognise",
    "replayed_look",
    "unbet",
    "without",
]
