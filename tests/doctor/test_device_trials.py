# SPDX-License-Identifier: Apache-2.0
"""What `sentinel doctor --npu` asks a device, asked of the CPU; and an answer that is wrong fails with a remedy."""

from pathlib import Path

import pytest

from sentinel.doctor import accelerator, device_trials
from sentinel.facts.npu import FACTS

DOCS = Path(__file__).parents[2] / "docs" / "npu.md"


@pytest.mark.torch
@pytest.mark.parametrize("name", sorted(device_trials.TRIALS))
def test_a_cpu_passes_every_question(name):
    pytest.importorskip("torch")

    answer = device_trials.TRIALS[name]("cpu")

    assert answer["ok"], answer["said"]


@pytest.mark.torch
def test_products_of_few_bits_are_told(monkeypatch):
    torch = pytest.importorskip("torch")
    whole = torch.Tensor.__matmul__

    def few_bits(left, right):
        if left.dtype is torch.float64:
            return whole(left, right)
        return whole(left.bfloat16().float(), right.bfloat16().float())

    monkeypatch.setattr(torch.Tensor, "__matmul__", few_bits)

    assert not device_trials.float32_on("cpu")["ok"]


@pytest.mark.parametrize("name", sorted(accelerator.QUESTIONS))
def test_a_wrong_answer_fails_with_a_remedy_and_no_device_is_unknown(name):
    said = {asked: {"ok": asked != name, "said": "x"} for asked in accelerator.QUESTIONS}

    (failed,) = [check for check in accelerator.checks(said) if check.status != "pass"]

    assert (failed.id, failed.status) == (f"npu.{name}", "fail")
    assert failed.fix
    assert {check.status for check in accelerator.checks({"error": "none here"})} == {"unknown"}


def test_every_question_is_tried_and_every_trial_is_a_question():
    assert set(device_trials.TRIALS) | {"compute", "repeat", "dump"} == set(accelerator.QUESTIONS)


def test_every_fact_stands_in_the_docs_with_its_source():
    text = DOCS.read_text(encoding="utf-8")

    for fact in FACTS:
        assert fact.what in text, fact.what
        assert fact.source in text, fact.source
