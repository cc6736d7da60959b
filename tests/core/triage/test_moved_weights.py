# SPDX-License-Identifier: Apache-2.0
"""A weight that an update can have moved is not blamed; one that no update can have moved is."""

from sentinel.core.triage import compare
from sentinel.records import LayerStat

SHAPE = (32, 34, 64)
MODULES = tuple(f"layers.{number}" for number in range(8))


def stat(module, position, order, *, shape, norm, peak):
    direction = "parameters" if position.startswith("parameters") else "forward"
    return LayerStat(
        name=f"Module.{module}.Linear.forward.0", module=module, direction=direction, position=position, order=order,
        norm=norm, mean=0.01, max=peak, min=-peak, dtype="float32", shape=shape,
    )  # fmt: skip


def chain():
    """Eight modules, each fed by the one before, with a weight and a bias each."""
    return [
        row
        for place, module in enumerate(MODULES)
        for row in (
            stat(module, "input.0", place, shape=SHAPE, norm=200.0, peak=4.0),
            stat(module, "output.0", place, shape=SHAPE, norm=200.0, peak=4.0),
            stat(module, "parameters.weight", place, shape=(64, 64), norm=4.0, peak=0.25),
            stat(module, "parameters.bias", place, shape=(64,), norm=0.4, peak=0.125),
        )
    ]


def with_fault(rows, module):
    """The norm of a module's output, and of what is fed from it, is off."""
    start = next(i for i, r in enumerate(rows) if r.module == module and r.position == "output.0")
    return [
        r._replace(norm=r.norm * 1.05) if i >= start and r.direction == "forward" else r for i, r in enumerate(rows)
    ]


def moved(rows, by):
    """The rows with weights moved: (module, position) -> distance."""
    return [
        r._replace(max=r.max + by[r.module, r.position], min=r.min - by[r.module, r.position])
        if (r.module, r.position) in by
        else r
        for r in rows
    ]


def first_of(target, stage):
    first = compare({stage: {0: target}}, {stage: {0: chain()}}).first
    return first and (first.module, first.position)


def test_a_bias_that_stepped_by_a_learning_rate_is_not_blamed_for_a_faulty_module():
    by = {("layers.5", "parameters.bias"): 2e-5}

    assert first_of(moved(with_fault(chain(), "layers.2"), by), "actor_update") == ("layers.2", "output.0")


def test_nor_is_it_where_all_others_moved_a_little():
    by = {(module, "parameters.weight"): 1e-7 for module in MODULES} | {("layers.5", "parameters.bias"): 2e-5}

    assert first_of(moved(with_fault(chain(), "layers.2"), by), "actor_update") == ("layers.2", "output.0")


def test_a_weight_that_no_update_can_have_moved_so_far_is_blamed():
    by = {("layers.5", "parameters.weight"): 0.01}

    assert first_of(moved(chain(), by), "actor_update") == ("layers.5", "parameters.weight")


def test_in_a_frozen_stage_every_difference_of_a_weight_is_a_fault():
    by = {("layers.5", "parameters.bias"): 2e-5}

    assert first_of(moved(chain(), by), "ref_compute_log_prob") == ("layers.5", "parameters.bias")
    assert first_of(moved(chain(), by), "actor_compute_log_prob") is None
