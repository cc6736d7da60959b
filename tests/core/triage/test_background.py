# SPDX-License-Identifier: Apache-2.0
"""Another arithmetic shows in several operations; what a single one adds may be the fault itself."""

from sentinel.core.triage.judging import Fresh, background

LEAST = 2e-5


def noise(kind, size=4e-5):
    return Fresh(kind=kind, norm=1e-7, peak=size / 2, overall=size)


def quiet(kind):
    return Fresh(kind=kind, norm=0.0, peak=0.0, overall=0.0)


def test_one_noisy_call_alone_is_no_background():
    assert background([noise("RMSNorm")], LEAST) == 0.0
    assert background([noise("RMSNorm"), quiet("Linear"), quiet("Linear")], LEAST) == 0.0


def test_noise_in_two_classes_or_two_calls_is_one():
    assert background([noise("RMSNorm"), noise("Linear", 9e-5)], LEAST) == 9e-5
    assert background([noise("Linear"), noise("Linear"), quiet("Linear")], LEAST) == 4e-5
