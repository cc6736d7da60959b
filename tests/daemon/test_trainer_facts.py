# SPDX-License-Identifier: Apache-2.0
"""What a trainer says of itself decides about captures; what it does not say stays unknown."""

import pytest

from sentinel.daemon.captured import described
from tests.support.watching import World


def test_ranks_come_from_the_launcher_and_the_size_from_the_largest_worker():
    told = described({"ranks": 4}, {"workers": [{"parameters": 10}, {"parameters": 5e8}, "?"]}, recorder=True)

    assert (told.ranks, told.parameters, told.recorder) == (4, 5e8, True)


@pytest.mark.parametrize("facts", [{}, {"ranks": "many"}, {"ranks": -1}, {"ranks": None}])
@pytest.mark.parametrize("more", [{}, {"workers": None}, {"workers": [{}]}, {"workers": [{"parameters": "big"}]}])
def test_what_cannot_be_read_is_not_known(facts, more):
    told = described(facts, more, recorder=False)

    assert (told.ranks, told.parameters) == (0, 0.0)


@pytest.mark.parametrize("enabled", [True, False])
def test_the_trainer_is_told_what_its_settings_say_of_captures(tmp_path, enabled):
    world = World(
        tmp_path,
        trainer={"min_free_bytes": 7, "flight_recorder_bytes": 5},
        engine={"capture": {"enabled": enabled}},
    )
    world.start()

    told = world.trainer().reply["settings"]

    assert (told["min_free_bytes"], told["flight_recorder_bytes"], told["preload"]) == (7, 5, enabled)
    world.stop()


def test_the_engine_learns_what_the_trainer_said(tmp_path):
    world = World(tmp_path, trainer={"flight_recorder_bytes": 5})
    world.start()
    trainer = world.trainer(ranks=8, stages=["actor_update", "rollout"])
    trainer.send({"t": "facts", "at": 1.0, "facts": {"workers": [{"rank": 0, "parameters": 5e8}]}})

    book = world.watchdog.with_watch("r", lambda watch: watch.state.book)

    assert (book.ranks, book.size.parameters, book.stages, book.recorder) == (8, 5e8, ("actor_update",), True)
    world.stop()
