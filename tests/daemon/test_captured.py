"""Which dump is compared with which golden one, and which answer counts."""

import pytest

from sentinel.daemon.captured import Golden, triage
from sentinel.daemon.references import load_reference
from sentinel.records import AskTriage, CaptureReceipt
from tests.support.baselines import receipt_record, start_record, step_record, write_dump, write_recording

UPDATE, LOGP = "actor_update", "actor_compute_log_prob"


@pytest.fixture
def golden(tmp_path):
    """A recording with golden dumps of both stages at steps 9 and 10."""
    path = tmp_path / "gold.jsonl"
    records = [start_record()]
    for step in (9, 10):
        records.append(step_record(step, actor__loss=1.0))
        for stage in (UPDATE, LOGP):
            write_dump(tmp_path / "gold.jsonl.dumps", step, stage)
            records.append(receipt_record(step, stage))
    write_recording(path, *records)
    return Golden(str(path), load_reference(path), tmp_path / "cache")


def asked(tmp_path, dumps, *, non_finite=False, stages=(UPDATE, LOGP)):
    """A question about dumps: (step, stage, norm)."""
    paths = []
    for step, stage, norm in dumps:
        write_dump(tmp_path / "dumps", step, stage, norm=norm)
        paths.append(str(tmp_path / "dumps" / f"step_{step}" / stage))
    receipt = CaptureReceipt(9, 10, stages, (0,), tuple(paths), 1, 0.1, "complete")
    return AskTriage("r:1", "r:1/c1", receipt, non_finite, stages)


def test_the_first_difference_counts(tmp_path, golden):
    """The likelier stage is the same, the other one differs."""
    answer = triage(asked(tmp_path, [(9, UPDATE, 1.0), (9, LOGP, 3.0)]), golden)

    assert (answer.verdict, answer.first.stage, answer.step) == ("diverged", LOGP, 9)
    assert "step 9, actor_update: same" in answer.notes


def test_the_earlier_step_is_asked_first(tmp_path, golden):
    """A later dump holds what the fault moved since."""
    answer = triage(asked(tmp_path, [(10, UPDATE, 9.0), (9, UPDATE, 3.0)]), golden)

    assert answer.step == 9


def test_the_same_everywhere_is_an_answer(tmp_path, golden):
    """Nothing differs in what was dumped."""
    assert triage(asked(tmp_path, [(9, UPDATE, 1.0)]), golden).verdict == "same"


def test_a_step_without_a_golden_dump_is_said(tmp_path, golden):
    """Not comparable, with the reason; a golden one elsewhere still counts."""
    lonely = triage(asked(tmp_path, [(7, UPDATE, 3.0)]), golden)

    assert lonely.verdict == "not_comparable"
    assert "no golden dump of actor_update at step 7" in lonely.notes[0]
    assert triage(asked(tmp_path, [(7, UPDATE, 3.0), (9, UPDATE, 3.0)]), golden).verdict == "diverged"


def test_without_a_baseline_nothing_is_compared(tmp_path):
    """And that is said."""
    answer = triage(asked(tmp_path, [(9, UPDATE, 3.0)]), Golden(None, None, tmp_path))

    assert answer.verdict == "not_comparable"


def test_nan_needs_no_golden_dump(tmp_path):
    """The first NaN is looked for in the dump itself."""
    answer = triage(asked(tmp_path, [(9, UPDATE, 1.0)], non_finite=True), Golden(None, None, tmp_path))

    assert answer.verdict == "non_finite"


def test_no_dump_at_all_is_said(tmp_path, golden):
    """The receipt came without paths that fit."""
    assert "left no dump" in triage(asked(tmp_path, []), golden).notes[0]


def test_a_dump_that_is_gone_is_said(tmp_path, golden):
    """Cleaned up before it could be read."""
    ask = asked(tmp_path, [(9, UPDATE, 1.0)])
    for file in (tmp_path / "dumps").rglob("dump.json"):
        file.unlink()

    assert triage(ask, golden).verdict == "not_comparable"
