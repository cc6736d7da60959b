# SPDX-License-Identifier: Apache-2.0
"""Golden dumps are found by their form."""

import pytest

from sentinel.errors import BaselineError
from sentinel.records import GoldenDump
from sentinel.storage.dump_tree import check_dump_file, find_dumps
from tests.support.baselines import write_dump


def test_dumps_are_found_by_step_stage_and_rank(tmp_path):
    for step, stage, rank in [(10, "actor_update", 0), (2, "actor_update", 1), (2, "actor_update", 0)]:
        write_dump(tmp_path, step, stage, rank)

    assert find_dumps(tmp_path) == (
        GoldenDump(2, "actor_update", (0, 1), str(tmp_path / "step_2" / "actor_update")),
        GoldenDump(10, "actor_update", (0,), str(tmp_path / "step_10" / "actor_update")),
    )


def test_what_has_another_form_is_no_dump(tmp_path):
    for folder in ("step_x/s/step0/rank0", "step_1/s/step1/rank0", "step_1/s/step0/rank-1", "step_1/a b/step0/rank0"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "dump.json").write_text("{}")
    (tmp_path / "step_1" / "t" / "step0" / "rank0").mkdir(parents=True)
    (tmp_path / "step_2").write_text("a file")

    assert find_dumps(tmp_path) == ()
    assert find_dumps(tmp_path / "nowhere") == ()


def test_a_dump_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(BaselineError, match="cannot be read"):
        check_dump_file(tmp_path / "dump.json")
