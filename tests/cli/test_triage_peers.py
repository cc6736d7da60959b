# SPDX-License-Identifier: Apache-2.0
"""The peers of triage: three times the noise of clean pairs names the first row beyond it, in order of execution."""

import pytest

from sentinel.cli.triage_peers import NoiseRule, module_of_row, noise_of, peers
from tests.support.dumps import edit, tensors, unpack

UP = "model.layers.1.mlp.up_proj"
DOWN = "model.layers.1.mlp.down_proj"


def grown(factors):
    """A change: the norms of the outputs of these modules' forwards times a factor."""

    def change(found):
        for name, entry in found["data"].items():
            for module, factor in factors.items():
                if f".{module.removeprefix('model.')}.Linear.forward" in name:
                    for tensor in tensors(entry["output"]):
                        tensor["Norm"] *= factor

    return change


@pytest.fixture
def folder(tmp_path):
    """A golden dump, and clean targets whose linear layers are off by 1e-4."""
    unpack("l0", tmp_path / "golden")
    for name in ("clean", "clean2"):
        edit(unpack("l0", tmp_path / name), grown({UP: 1.0001}))
    return tmp_path


def pair(target, evidence="strong", **more):
    return {"target": f"{target}/l0", "golden": "golden/l0", "evidence": evidence, **more}


def planted(folder, factors):
    edit(unpack("l0", folder / "broken"), grown(factors))
    return pair("broken")


@pytest.mark.parametrize(("factors", "answer"), [
    ({UP: 1.0002, DOWN: 1.0002}, (None, None)),
    ({UP: 1.0004}, (UP, "forward")),
    ({UP: 1.0002, DOWN: 1.0004}, (DOWN, "forward")),
    ({DOWN: 1.5, UP: 1.0004}, (UP, "forward")),
    ({UP: float("nan")}, (UP, "forward")),
])  # fmt: skip
def test_the_first_row_beyond_three_times_the_noise_of_its_kind_is_named(folder, factors, answer):
    rule = NoiseRule.of([pair("clean", "clean")], folder)

    assert rule(planted(folder, factors), folder) == answer


def test_a_clean_pair_is_judged_by_the_others_and_never_by_itself(folder):
    alone = [pair("clean", "clean"), planted(folder, {UP: 1.5})]
    two = [*alone, pair("clean2", "clean")]

    assert NoiseRule.of(alone, folder)(alone[0], folder) == (UP, "forward")
    assert NoiseRule.of(two, folder)(two[0], folder) == (None, None)


def test_a_pair_that_names_a_clean_pair_is_judged_by_that_one(folder):
    named = planted(folder, {UP: 1.0004}) | {"calibration": ["clean/l0", "golden/l0"]}
    exact = named | {"calibration": ["golden/l0", "golden/l0"]}

    assert NoiseRule()(named, folder) == (UP, "forward")
    assert NoiseRule()(exact | {"target": "clean/l0"}, folder) == (UP, "forward")
    assert NoiseRule()(named | {"target": "clean/l0"}, folder) == (None, None)


def test_noise_is_kept_by_class_direction_role_and_dtype(folder):
    noise = noise_of(folder / "clean/l0", folder / "golden/l0")

    assert {kind for kind, size in noise.items() if size > 1e-6} == {("Linear", "forward", "output", "float32")}


def test_without_a_clean_pair_the_rule_is_not_asked(folder):
    assert "three times the noise" not in peers([planted(folder, {UP: 2.0})], folder)
    assert "three times the noise" in peers([pair("clean", "clean")], folder)


@pytest.mark.parametrize(("name", "module"), [
    ("Module.model.layers.1.mlp.up_proj.Linear.forward.0.output.0", UP),
    ("Module.model.layers.1.mlp.up_proj.Linear.parameters_grad.weight", UP),
    ("Functional.linear.3.forward.input.0", "Functional.linear"),
])  # fmt: skip
def test_a_row_name_of_msprobes_is_a_module(name, module):
    assert module_of_row(name) == module
