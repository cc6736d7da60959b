# SPDX-License-Identifier: Apache-2.0
"""A deeper dump beside the one before it: what it bears out, what it does not, and that the incident says so."""

import pytest

from sentinel.core.engine.telling import told, told_deeper
from sentinel.core.report.agreement import agreement, disagrees
from sentinel.records import Divergence, Incident, Triage

MLP = "model.layers.1.mlp"


def place(module=MLP, direction="forward", stage="actor_update", name=""):
    name = name or f"Module.{module}.Linear.{direction}.0"
    return Divergence(stage, name, module, direction, "output.0", "why.", {"norm": 1.0}, {"norm": 2.0})


def triage(first, verdict="diverged", step=9):
    return Triage(verdict, None, first, 5, step=step)


def incident(first=None):
    return Incident(
        id="run:1",
        run="run",
        kind="drift",
        state="open",
        opened_at_step=7,
        closed_at_step=None,
        severity="warning",
        stage="actor_update",
        suspects=(),
        findings=(),
        because="The metrics say so.",
        triage=triage(first or place(), step=8),
    )


@pytest.mark.parametrize(("later", "beginning", "warns"), [
    (triage(place()), "It bears out the earlier dump", False),
    (triage(place(f"{MLP}.up_proj")), "It bears out the earlier dump", False),
    (triage(place(f"{MLP}_other")), "It contradicts", True),
    (triage(place("model.layers.1")), "It names model.layers.1 (forward), the module around", True),
    (triage(place("model.layers.10.mlp")), "It contradicts", True),
    (triage(place(direction="backward")), "It bears out the module", True),
    (triage(place(stage="critic_update")), "It contradicts", True),
    (triage(place("Functional.linear", name="Functional.linear.3.forward")), "It names an operation and no module", True),
    (triage(place(name="Functional.linear.3.forward")), "It bears out the earlier dump", False),
    (triage(None, "same"), "It does not bear out", True),
    (triage(None, "clean"), "It does not bear out", True),
    (triage(None, "not_comparable"), "", False),
])  # fmt: skip
def test_a_later_dump_is_told_beside_the_earlier_one(later, beginning, warns):
    said = agreement(place(), later)

    assert said.startswith(beginning)
    assert bool(said) == bool(beginning)
    assert disagrees(said) == warns


def test_a_deeper_dump_that_agrees_is_noted():
    after = told_deeper(incident(), triage(place(f"{MLP}.up_proj")), "which operation?")

    assert "bears out the earlier dump" in after.notes[-1]
    assert "bears out" not in after.because


@pytest.mark.parametrize("later", [triage(place("model.layers.0.mlp")), triage(None, "same")])
def test_a_deeper_dump_that_does_not_agree_stands_where_readers_look_first(later):
    after = told_deeper(incident(), later, "which operation?")
    said = agreement(place(), later)

    assert said in after.because
    assert said in after.triage.notes
    assert said in after.notes[-1]
    assert after.triage.first == place()


def test_a_second_whole_dump_is_told_beside_the_first_one():
    other = told(incident(), triage(place("model.layers.0.mlp")))
    quiet = told(incident(), triage(None, "same"))

    assert "It contradicts the earlier dump" in other.because
    assert other.triage.first == place()
    assert quiet.because == incident().because
