# SPDX-License-Identifier: Apache-2.0
"""The order for a golden made to order: from which checkpoint, on which rollouts, and what that can prove."""

import pytest

from sentinel.daemon.golden_plan import how, plan, saved_step
from sentinel.errors import DaemonError
from sentinel.records import CaptureOrder, Incident

ORDER = CaptureOrder("r:1/c1", "r", "r:1", 8, 9, ("actor_update",), "L0", None, "why")


def incident(order=ORDER):
    return Incident(
        id="r:1",
        run="r",
        kind="drift",
        state="open",
        opened_at_step=7,
        closed_at_step=None,
        severity="warning",
        stage="actor_update",
        suspects=(),
        findings=(),
        capture=order,
    )


def test_the_newest_checkpoint_before_the_dump_and_the_runs_own_recording_are_named():
    document = plan(
        incident(), {"checkpoint_dir": "/ckpt", "save_freq": 5, "replay_dir": "/rec", "rollout_data_dir": "/d"}
    )

    assert (document["checkpoint"], document["rollouts"]) == ("/ckpt/global_step_5", "/rec")
    assert "checkpoint of step 5" in document["how"]
    assert "Steps 6 to 7 are trained again" in document["how"]
    (order,) = document["orders"]
    assert (order["first_step"], order["last_step"], order["ranks"]) == (8, 9, "all")


@pytest.mark.parametrize("facts", [{}, {"checkpoint_dir": "/ckpt"}, {"checkpoint_dir": "/ckpt", "save_freq": -1}])
def test_where_no_checkpoint_is_known_none_is_claimed(facts):
    document = plan(incident(), facts)

    assert document["checkpoint"] is None
    assert "checkpoint of step 7" in document["how"]


@pytest.mark.parametrize(("first", "freq", "saved"), [(8, 1, 7), (8, 7, 7), (8, 3, 6), (8, 9, None), (1, 1, None)])
def test_checkpoints_lie_at_multiples_of_the_frequency(first, freq, saved):
    assert saved_step(first, freq) == saved


def test_a_checkpoint_right_before_the_dump_leaves_nothing_between():
    assert "trained again" not in how(8, 7)


def test_without_a_capture_there_is_nothing_to_compare_with():
    with pytest.raises(DaemonError, match="has no capture"):
        plan(incident(None), {})
