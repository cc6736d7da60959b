# SPDX-License-Identifier: Apache-2.0
"""A module that just crosses the line is not blamed where another stands far out."""

from sentinel.core.triage import compare
from sentinel.records import LayerStat

SHAPE = (32, 34, 64)
STAGE = "actor_compute_log_prob"


def row(module, position, order, norm=200.0, peak=4.0):
    return LayerStat(
        name=f"Module.{module}.Linear.forward.0", module=module, direction="forward", position=position, order=order,
        norm=norm, mean=0.01, max=peak, min=-peak, dtype="float32", shape=SHAPE,
    )  # fmt: skip


def chain():
    """Three modules, each fed by the one before."""
    rows = []
    for place, module in enumerate(("layers.0", "layers.1", "layers.2")):
        rows += [row(module, "input.0", place), row(module, "output.0", place)]
    return rows


def changed(rows, module, factor):
    """The rows with the norm of one module's output, and of what is fed from it, off by a factor."""
    start = next(i for i, r in enumerate(rows) if r.module == module and r.position == "output.0")
    return [r._replace(norm=r.norm * factor) if i >= start else r for i, r in enumerate(rows)]


def first_of(target):
    return compare({STAGE: {0: target}}, {STAGE: {0: chain()}}).first


def test_alone_a_border_case_is_named():
    assert first_of(changed(chain(), "layers.0", 1.0001)).module == "layers.0"


def test_a_border_case_upstream_does_not_hide_a_clear_one():
    both = changed(changed(chain(), "layers.0", 1.0001), "layers.2", 1.5)

    assert first_of(both).module == "layers.2"


def test_the_first_of_two_clear_ones_is_named():
    both = changed(changed(chain(), "layers.0", 1.05), "layers.2", 1.5)

    assert first_of(both).module == "layers.0"
