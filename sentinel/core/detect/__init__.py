# SPDX-License-Identifier: Apache-2.0
"""The released detectors, in the order in which they look at a step.

Adding one: a module named after the fault, a line here; the contract suite in tests/core/detect then tests it.
"""

from typing import Any

from sentinel.core.detect.base import Detector
from sentinel.core.detect.collapse import CollapseDetector
from sentinel.core.detect.departure import ENTROPY, DepartureDetector, DepartureState, parted, strictly
from sentinel.core.detect.drift import DriftDetector
from sentinel.core.detect.e_detector import EDetector
from sentinel.core.detect.limit import LimitDetector
from sentinel.core.detect.mismatch import MismatchDetector
from sentinel.core.detect.nonfinite import NonFiniteDetector
from sentinel.core.detect.silence import SilenceDetector
from sentinel.core.detect.spike import SpikeDetector

DETECTORS: dict[str, Detector[Any]] = {
    detector.name: detector
    for detector in (
        NonFiniteDetector(),
        MismatchDetector(),
        DepartureDetector(),
        SpikeDetector(),
        DriftDetector(),
        EDetector(),
        LimitDetector(),
        SilenceDetector(),
        CollapseDetector(),
    )
}

__all__ = ["DETECTORS", "ENTROPY", "DepartureState", "Detector", "parted", "strictly"]
