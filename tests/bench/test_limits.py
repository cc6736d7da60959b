# SPDX-License-Identifier: Apache-2.0
"""Limits of the metric catalogue: what is fitted, and how it gets into the file."""

import numpy as np
import pytest

from bench.corpus import limits
from sentinel.core.catalogue import Catalogue
from sentinel.core.compare.windows import lower_median

tomllib = pytest.importorskip("tomllib")

CATALOGUE = """version = 1

[[metric]]
match = ["a/{mean,max}"]
stage = "rollout"
class = "close"
replay = [9, 9, 9, 9]
text = "A."

[[metric]]
match = ["b"]
stage = "rollout"
class = "close"
text = "B."
"""


def runs(*tops):
    """Maxima over the windows of so many clean runs."""
    return [np.full(4, top) for top in tops]


def test_the_largest_median_of_each_window_is_found():
    course = np.array([[0.0, 4.0, 4.0, 0.0, 9.0, 0.0]])

    one, three = limits.maxima(course, (1, 3))[:, 0]

    assert (one, three) == (9.0, max(lower_median(course[:, :end], 3)[0] for end in (3, 4, 5, 6)))


def test_a_few_runs_that_part_for_good_do_not_set_the_limit():
    calm = limits.limits(runs(*np.linspace(2, 6, 100)), "replayed", "actor/entropy")
    parted = limits.limits(runs(*np.linspace(2, 6, 98), 500, 900), "replayed", "actor/entropy")

    np.testing.assert_allclose(calm, parted, rtol=0.1)


def test_a_limit_is_above_what_97_of_100_runs_do():
    assert limits.limits(runs(*[1.0] * 90, *[50.0] * 10), "replayed", "actor/entropy")[0] > 50


def test_few_steps_of_few_tokens_are_no_evidence():
    assert limits.limits(runs(*np.linspace(2, 6, 100)), "replayed", "critic/advantages/mean")[0] > 0
    assert limits.limits(runs(*np.linspace(2, 6, 100)), "replayed", "critic/advantages/max")[:2] == [0.0, 0.0]


def test_a_metric_that_never_deviates_gets_no_limit():
    assert limits.limits(runs(0.0, 0.0), "replayed", "actor/lr") is None


def test_limits_replace_what_stands_in_the_catalogue_and_alternatives_share_the_largest(tmp_path):
    file = tmp_path / "metrics.toml"
    file.write_text(CATALOGUE, encoding="utf-8")

    limits.write(file, {"replay": {"a/mean": [1, 2, 3, 4], "a/max": [0, 5, 1, 1]}, "free": {"b": [1, 1, 1, 1, 1]}})
    limits.write(file, {"replay": {"a/mean": [1, 2, 3, 4], "a/max": [0, 5, 1, 1]}, "free": {"b": [1, 1, 1, 1, 1]}})

    catalogue = Catalogue.from_mapping(tomllib.loads(file.read_text(encoding="utf-8")))
    assert catalogue.entry("a/max").replay_limits == (1.0, 5.0, 3.0, 4.0)
    assert catalogue.entry("b").free_limits == (1.0,) * 5
    assert file.read_text(encoding="utf-8").count("replay =") == 1
