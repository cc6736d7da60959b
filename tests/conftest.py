# SPDX-License-Identifier: Apache-2.0
"""What all tests share: tools that may be missing are named, and CI does not accept that they are."""

import importlib.util
import os
import shutil
from pathlib import Path

import hypothesis
import pytest

# How long an example takes says more about the machine than about the code: timings are benchmarks, never tests.
hypothesis.settings.register_profile("sentinel", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
hypothesis.settings.load_profile("sentinel")

ROOT = Path(__file__).parents[1]
LONGEST = ("test_demo.py", "test_rollouts.py", "test_loops.py", "test_verl.py", "test_captures.py", "test_training.py")
"""Files whose tests take minutes, in the order that ends soonest on two workers: each is handed two files to begin with."""


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items):
    """Where files are handed to several processes, the longest are handed out first."""
    if "PYTEST_XDIST_WORKER" in os.environ:  # a worker does not know by which rule it is handed tests
        place = {name: number for number, name in enumerate(LONGEST)}
        items.sort(key=lambda item: place.get(item.path.name, len(LONGEST)))


@pytest.fixture
def need():
    """Say which program or module a test needs: left out with its name where it is missing, failed in CI."""

    def there(*names):
        for name in names:
            found = shutil.which(name) or ("/" not in name and "-" not in name and importlib.util.find_spec(name))
            if not found:
                reason = f"{name} is not installed (make packages, make install)"
                if os.environ.get("CI"):
                    pytest.fail(reason)
                pytest.skip(reason)

    return there
