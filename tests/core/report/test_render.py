# SPDX-License-Identifier: Apache-2.0
"""Records in the contract's plain forms and back, and as Markdown."""

import json
import math

from hypothesis import given
from hypothesis import strategies as st

from sentinel.core.report import render, revive
from sentinel.records import (
    STAGES,
    Band,
    Capture,
    CaptureOrder,
    CaptureReceipt,
    Chart,
    Comparable,
    Divergence,
    Finding,
    Incident,
    Suspect,
    Triage,
)

TEXT = st.text(max_size=8)
STEP = st.integers(0, 10**6)
NUMBER = st.floats(allow_nan=False)
STAGE = st.sampled_from(STAGES)
BANDS = st.none() | st.builds(Band, low=NUMBER, high=NUMBER)
FINDINGS = st.builds(
    Finding,
    detector=TEXT,
    metric=TEXT,
    step=STEP,
    value=NUMBER,
    expected=BANDS,
    because=TEXT,
    stage=STAGE,
    kind=TEXT,
    score=NUMBER,
)
RANKS = st.lists(st.integers(0, 9), max_size=3).map(tuple)
TEXTS = st.lists(TEXT, max_size=3).map(tuple)
ORDERS = st.builds(
    CaptureOrder, id=TEXT, run=TEXT, incident=st.none() | TEXT, first_step=STEP, last_step=STEP, stages=TEXTS, level=TEXT,
    ranks=st.none() | RANKS, why=TEXT, modules=TEXTS, task=TEXT,
)  # fmt: skip
RECEIPTS = st.builds(
    CaptureReceipt, first_step=STEP, last_step=STEP, stages=TEXTS, ranks=RANKS, paths=TEXTS, bytes=STEP, seconds=st.floats(0, 9), outcome=TEXT, why=TEXT
)  # fmt: skip
HELD = st.sampled_from([True, False, None])
FIRSTS = st.builds(
    Divergence, stage=STAGE, name=TEXT, module=TEXT, direction=TEXT, position=TEXT, why=TEXT,
    target=st.dictionaries(TEXT, STEP, max_size=2), golden=st.none() | st.dictionaries(TEXT, STEP, max_size=2),
)  # fmt: skip
TRIAGES = st.builds(
    Triage, verdict=TEXT, comparable=st.none() | st.builds(Comparable, step=HELD, rows=HELD, weights=HELD), first=st.none() | FIRSTS,
    compared=STEP, only_in_target=TEXTS, only_in_golden=TEXTS, ranks=RANKS, step=st.none() | STEP, target=TEXT, golden=TEXT, notes=TEXTS,
    suspects=st.lists(FIRSTS, max_size=2).map(tuple),
)  # fmt: skip
INCIDENTS = st.builds(
    Incident, id=TEXT, run=TEXT, kind=TEXT, state=TEXT, opened_at_step=STEP, closed_at_step=st.none() | STEP, severity=TEXT, stage=STAGE,
    suspects=st.lists(st.builds(Suspect, stage=STAGE, confidence=st.floats(0, 1), because=TEXT), max_size=2).map(tuple),
    findings=st.lists(FINDINGS, max_size=2).map(tuple), capture=st.none() | ORDERS, receipt=st.none() | RECEIPTS, triage=st.none() | TRIAGES,
    because=TEXT, last_seen_step=STEP, notes=TEXTS,
)  # fmt: skip
CAPTURES = st.builds(
    Capture, id=TEXT, run=TEXT, incident=st.none() | TEXT, state=TEXT, order=ORDERS, receipt=st.none() | RECEIPTS
)

INCIDENT = Incident(
    id="run:1",
    run="run",
    kind="drift",
    state="open",
    opened_at_step=4,
    closed_at_step=None,
    severity="critical",
    stage="actor_update",
    suspects=(Suspect(stage="actor_update", confidence=0.9, because="the gradient moved"),),
    findings=(
        Finding(
            detector="departure",
            metric="actor/grad_norm",
            step=4,
            value=math.nan,
            expected=Band(0.1, math.inf),
            because="apart | by 2",
        ),
    ),
    because="actor/grad_norm is NaN.",
    notes=("Ordered a dump.",),
)


@given(INCIDENTS)
def test_an_incident_comes_back_from_its_plain_form(incident):
    assert revive.incident_from_plain(json.loads(json.dumps(render.incident_to_plain(incident)))) == incident


@given(CAPTURES)
def test_a_capture_comes_back_from_its_plain_form(capture):
    assert revive.capture_from_plain(json.loads(json.dumps(render.capture_to_plain(capture)))) == capture


def test_an_incident_has_the_fields_of_the_contract():
    plain = render.incident_to_plain(INCIDENT)

    assert {
        "id",
        "run",
        "kind",
        "state",
        "opened_at_step",
        "closed_at_step",
        "severity",
        "stage",
        "suspects",
        "findings",
        "capture",
        "receipt",
        "triage",
    } <= set(plain)
    assert {"detector", "metric", "step", "value", "expected", "because"} <= set(plain["findings"][0])
    assert plain["findings"][0]["expected"] == {"low": 0.1, "high": math.inf}
    assert set(render.incident_to_row(INCIDENT)) == {
        "id",
        "run",
        "kind",
        "state",
        "opened_at_step",
        "closed_at_step",
        "severity",
        "stage",
        "because",
    }


def test_all_ranks_are_called_all_and_what_is_not_known_unknown():
    order = CaptureOrder(
        id="", run="", incident=None, first_step=1, last_step=2, stages=(), level="L0", ranks=None, why=""
    )

    assert render.order_to_plain(order)["ranks"] == "all"
    assert render.comparable_to_plain(Comparable(step=True, rows=None, weights=False)) == {
        "step": True,
        "rows": "unknown",
        "weights": False,
    }


def test_numbers_may_come_as_words():
    plain = {"detector": "d", "metric": "m", "step": 1, "value": "nan", "expected": {"low": "-inf", "high": "inf"}}

    finding = revive.finding_from_plain(plain)

    assert math.isnan(finding.value)
    assert finding.expected == Band(-math.inf, math.inf)


def test_the_page_says_what_where_since_when_and_why():
    chart = Chart(
        metric="actor/grad_norm",
        stage="actor_update",
        steps=(3, 4),
        values=(0.1, math.nan),
        reference=(0.1, 0.1),
        low=(0.0, 0.0),
        high=(0.2, 0.2),
    )

    page = render.incident_to_markdown(INCIDENT, [chart])

    for part in (
        "# Critical: drift in actor_update",
        "since step 4",
        "actor/grad_norm is NaN.",
        "| actor_update | 90% |",
        "apart \\| by 2",
        "Ordered a dump.",
        "| 4 | NaN | 0.1 | [0, 0.2] |",
        ">= 0.1",
    ):
        assert part in page
