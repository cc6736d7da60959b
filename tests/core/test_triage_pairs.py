# SPDX-License-Identifier: Apache-2.0
"""A compact part of the fault sets (bench/triage_pairs.py): what is strong must be named, what is healthy must pass.

Dense, mixture-of-experts and tied models in fp32 and bf16; golden dumps of the same machine with other kernels, and of an H200.
"""

import json
import zipfile
from pathlib import Path

import pytest

from sentinel.core.triage import compare, first_non_finite
from sentinel.sources.msprobe_dump import read_dump

ARCHIVE = Path(__file__).parent.parent / "data" / "triage_pairs.zip"

with zipfile.ZipFile(ARCHIVE) as archive:
    PAIRS = json.loads(archive.read("index.json"))


def told(pair):
    fault = pair["fault"]
    return f"{pair['target']}-{pair['golden'].split('/')[0]}-{fault['kind'] if fault else 'clean'}"


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pairs")
    with zipfile.ZipFile(ARCHIVE) as archive:
        archive.extractall(folder)
    return folder


@pytest.mark.parametrize("pair", PAIRS, ids=told)
def test_the_planted_module_is_named_and_nothing_else_is(corpus, pair):
    target = read_dump(corpus / pair["target"]).stages
    if pair["evidence"] == "nonfinite":
        answer = first_non_finite(target)
    else:
        answer = compare(target, read_dump(corpus / pair["golden"]).stages, target_step=1, golden_step=1)

    if pair["evidence"] == "clean":
        assert (answer.verdict, answer.first) == ("same", None)
        assert (answer.comparable.rows, answer.comparable.weights) == (True, True)
    else:
        assert (answer.first.module, answer.first.direction) == (pair["module"], pair["direction"])


def test_the_part_holds_every_kind():
    assert {pair["evidence"] for pair in PAIRS} == {"clean", "strong", "nonfinite"}
    assert {pair["direction"] for pair in PAIRS} == {None, "forward", "backward", "parameters"}
    assert any(pair["golden"].startswith("h200/") for pair in PAIRS)
