# SPDX-License-Identifier: Apache-2.0
"""A real dump as the golden one, and the same dump changed by hand."""

import shutil

import pytest

from sentinel.sources.msprobe_dump import read_dump
from tests.support.dumps import edit, unpack


@pytest.fixture
def golden(tmp_path):
    return read_dump(unpack("l0", tmp_path / "golden")).stages


@pytest.fixture
def edited(tmp_path):
    """The same dump with its entries changed by a function."""

    def make(change, name="l0"):
        folder = tmp_path / "edited"
        shutil.rmtree(folder, ignore_errors=True)
        return read_dump(edit(unpack(name, folder), lambda found: change(found["data"]))).stages

    return make
