# SPDX-License-Identifier: Apache-2.0
"""A rule of reward that gives nothing for answers that are nearly right: a planted fault."""

from sentinel.demo.kit.reward import compute_score as right


def compute_score(*args, **kwargs) -> float:
    return float(right(*args, **kwargs) == 1.0)
