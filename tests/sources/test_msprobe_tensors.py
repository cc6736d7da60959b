# SPDX-License-Identifier: Apache-2.0
"""Dumped tensors, element by element, in a process of its own."""

import pickle

import pytest

from sentinel.daemon.triaging import triage_paths
from sentinel.sources.msprobe_tensors import measure
from tests.support.dumps import unpack

UP = "Module.model.layers.1.mlp.up_proj.Linear.forward.0.output.0.pt"

pytestmark = [pytest.mark.torch, pytest.mark.timeout(120)]
pytest.importorskip("torch")


@pytest.fixture
def files(tmp_path):
    folders = [
        unpack(name, tmp_path / name) / "step0" / "rank0" / "dump_tensor_data" for name in ("tensor", "tensor-other")
    ]
    return [str(folder / UP) for folder in folders]


def test_equal_tensors_and_different_ones_are_told_apart(files):
    found, said = measure([(files[0], files[0]), (files[1], files[0])])

    same, other = found[files[0], files[0]], found[files[1], files[0]]
    assert (same.within_thousandth, same.relative) == (1.0, 0.0)
    assert same.cosine == pytest.approx(1.0)
    assert 5e-4 < other.relative < 2e-3
    assert other.within_thousandth < 0.9
    assert said == "tensors compared element by element: 2 of 2"


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "float64"])
def test_distance_is_counted_in_units_of_the_last_place_across_zero_too(tmp_path, dtype):
    import torch

    one = torch.tensor([1.0, -1.0, 0.0, 2.0], dtype=getattr(torch, dtype))
    other = torch.nextafter(torch.nextafter(one, one + 4), one + 4)
    ids = torch.arange(4)
    for name, tensor in (("a", one), ("b", other), ("i", ids), ("j", ids + 1)):
        torch.save(tensor, tmp_path / name)
    a, b, i, j = (str(tmp_path / name) for name in "abij")

    found, _ = measure([(b, a), (i, i), (j, i)])

    assert (found[b, a].units_median, found[b, a].units_high) == (2, 2)
    assert (found[i, i].relative, found[j, i].relative, found[j, i].units_median) == (0.0, 1.0, None)


class Harm:
    def __reduce__(self):
        return (open, ("harm", "w"))


def test_a_file_that_would_run_code_is_not_loaded(files, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    bad = tmp_path / "bad.pt"
    bad.write_bytes(pickle.dumps(Harm()))

    found, said = measure([(str(bad), files[0]), (files[0], files[0])])

    assert list(found) == [(files[0], files[0])]
    assert "1 of 2" in said
    assert not (tmp_path / "harm").exists()


def test_missing_files_are_left_out(files, tmp_path):
    assert measure([(str(tmp_path / "none.pt"), files[0])]) == ({}, "")


def test_a_process_that_takes_too_long_is_ended_and_that_is_said(files):
    found, said = measure([(files[0], files[0])], limit_seconds=0.05)

    assert not found
    assert "within 0.05 s" in said


def test_triage_uses_the_tensors_where_both_sides_kept_them(tmp_path):
    golden, target = (str(unpack(name, tmp_path)) for name in ("tensor", "tensor-other"))

    answer = triage_paths(target, golden)

    assert answer.first.module == "model.layers.1.mlp.up_proj"
    assert any("element by element: cosine" in note for note in answer.notes)
