# SPDX-License-Identifier: Apache-2.0
"""How property tests run on machines that others use too: a slow example is no finding."""

from hypothesis import HealthCheck, settings

unhurried = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
