# SPDX-License-Identifier: Apache-2.0
"""What `sentinel up` says of a daemon that was there already."""

from sentinel.cli.bringing_up import meant_elsewhere


def test_a_daemon_that_is_not_where_it_is_meant_to_be_is_said_with_the_way_there():
    said = meant_elsewhere("trainer-0", ["sentinel-0", "sentinel-1"])

    assert said is not None
    assert "trainer-0" in said
    assert "sentinel-0" in said
    assert "`sentinel down` and `sentinel up`" in said


def test_nothing_is_said_of_a_daemon_in_its_place_or_without_one():
    assert meant_elsewhere("sentinel-1", ["sentinel-0", "sentinel-1"]) is None
    assert meant_elsewhere("anywhere", []) is None
