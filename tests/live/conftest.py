# SPDX-License-Identifier: Apache-2.0
"""What live tests share."""

from pathlib import Path

import pytest

from sentinel.demo.assets import AssetSettings, load

EXAMPLES = Path(__file__).parents[2] / "examples" / "h200"


@pytest.fixture(scope="session")
def assets():
    """The model and prompts of the example: the same that `prepare` makes, trained on text already."""
    found = load(EXAMPLES / "assets", AssetSettings())
    assert found is not None, "the example's assets are of other settings than the demo's"
    return found
