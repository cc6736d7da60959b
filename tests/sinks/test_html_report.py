# SPDX-License-Identifier: Apache-2.0
"""The HTML report: self-contained, bilingual, and safe against hostile text."""

import math
import re
import shutil
import subprocess
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from sentinel.core.report.incidents import EXPLAINS
from sentinel.core.report.samples import pair_samples
from sentinel.records import (
    Band,
    CaptureOrder,
    CaptureReceipt,
    Chart,
    Comparable,
    Divergence,
    Finding,
    Incident,
    RolloutRow,
    Suspect,
    Triage,
)
from sentinel.sinks.html_advice import advice
from sentinel.sinks.html_elements import Markup, tag
from sentinel.sinks.html_report import incident_html, size_text

HOSTILE = "</style><script>alert(1)</script><img src=x onerror=alert(2)>\u202e\x00\"'&"
FIRST = Divergence(
    "actor_update",
    "Module.model.layers.1.mlp.up_proj.Linear.forward.0",
    "model.layers.1.mlp.up_proj",
    "forward",
    "output.0",
    "inputs agree, output.0 does not",
    {"norm": 5.3316, "mean": math.nan, "max": 0.4, "min": -0.38, "dtype": "float32", "shape": [2, 16]},
    {"norm": 5.2270, "mean": 0.001, "max": 0.4, "min": -0.37, "dtype": "float32", "shape": [2, 16]},
)
TRIAGE = Triage(
    "diverged", Comparable(True, True, None), FIRST, 192, ("only.mine",), ("only.theirs",), (0, 1), 30, "/d/t t", "/d/g",
    ("a note",), (replace(FIRST, module="model.norm"),),
)  # fmt: skip
INCIDENT = Incident(
    id="run:1",
    run="run",
    kind="drift",
    state="open",
    opened_at_step=29,
    closed_at_step=None,
    severity="critical",
    stage="actor_update",
    suspects=(Suspect("actor_update", 0.72, "left its band first"), Suspect("actor_compute_log_prob", 0.21)),
    findings=(
        Finding("drift", "actor/grad_norm", 29, 0.9, Band(0.5, 0.6), "grad_norm is 0.9", "actor_update"),
        Finding("limit", "critic/score/mean", 30, math.nan, Band(-math.inf, 1.0), "NaN", "rollout"),
    ),
    capture=CaptureOrder("run:1/c1", "run", "run:1", 30, 30, ("actor_update",), "L0", None, "likeliest stage"),
    receipt=CaptureReceipt(
        30, 30, ("actor_update",), (0, 1), ("/dumps/step_30/actor_update",), 4_400_000, 1.84, "complete"
    ),
    triage=TRIAGE,
    because="grad_norm has left its band",
    last_seen_step=33,
    notes=("ordered a dump",),
)
CHART = Chart(
    "actor/grad_norm",
    "actor_update",
    (27, 28, 29, 30),
    (0.55, 0.56, 0.9, math.nan),
    (0.55, 0.55, 0.55, 0.55),
    (0.5, 0.5, 0.5, 0.5),
    (0.6, 0.6, 0.6, math.inf),
    (29, 30),
)


class _Tags(HTMLParser):
    """What a browser would make of the page."""

    def __init__(self):
        super().__init__()
        self.open, self.tags, self.attributes, self.text = [], [], [], []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(tag, *pair) for pair in attrs]
        if tag not in {"meta", "input", "br", "hr", "link"}:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] != "style":
            self.text.append(data)


def parse(page):
    parsed = _Tags()
    parsed.feed(page)
    parsed.close()
    assert parsed.open == []
    return parsed


@pytest.fixture
def page():
    return incident_html(INCIDENT, [CHART])


def test_the_page_loads_nothing_and_runs_nothing(page):
    parsed = parse(page)

    assert not {"script", "link", "img", "iframe", "object"} & set(parsed.tags)
    assert any(name == "content" and value.startswith("default-src 'none'") for _, name, value in parsed.attributes)
    assert not [value for _, name, value in parsed.attributes if name in {"src", "href"} or name.startswith("on")]
    assert "url(" not in re.sub(r"url\(#tip\)", "", page)
    assert "@import" not in page


def test_text_from_outside_cannot_become_markup():
    hostile = replace(
        INCIDENT,
        run=HOSTILE,
        because=HOSTILE,
        kind=HOSTILE,
        stage=HOSTILE,
        notes=(HOSTILE,),
        suspects=(Suspect(HOSTILE, 0.5, HOSTILE),),
        findings=(replace(INCIDENT.findings[0], metric=HOSTILE, because=HOSTILE),),
        triage=replace(
            TRIAGE, notes=(HOSTILE,), target=HOSTILE, first=replace(FIRST, module=HOSTILE, target={HOSTILE: HOSTILE})
        ),
        receipt=replace(INCIDENT.receipt, paths=(HOSTILE,), why=HOSTILE, outcome=HOSTILE),
    )

    page = incident_html(hostile, [replace(CHART, metric=HOSTILE, stage=HOSTILE)])

    parsed = parse(page)
    assert not {"script", "img"} & set(parsed.tags)
    assert not [name for _, name, _ in parsed.attributes if name.startswith("on")]
    assert "\u202e" not in page
    assert "\x00" not in page


def test_the_answer_stands_at_the_top(page):
    head = page[page.index("<header") : page.index("</header>")]

    for fact in ("29", "33", "actor update", "actor 更新", "model.layers.1.mlp.up_proj", "grad_norm has left its band"):
        assert fact in head


def test_every_sentence_of_the_page_is_there_in_both_languages(page):
    assert page.count('class="en" lang="en"') == page.count('class="zh" lang="zh"') > 30
    assert '<html lang="en">' in page
    assert '<html lang="zh">' in incident_html(INCIDENT, [CHART], language="zh")
    assert 'id="zh" checked' in incident_html(INCIDENT, [CHART], language="zh")


def test_target_and_golden_statistics_stand_side_by_side(page):
    row = page[page.index("<td>norm</td>") :].partition("</tr>")[0]

    assert "5.3316" in row
    assert "5.227" in row
    assert "0.0196" in row


def test_the_stage_graph_marks_the_blamed_stage_and_the_other_suspects(page):
    graph = page[page.index('class="flow"') - 400 : page.index("</svg>", page.index('class="flow"'))]

    assert graph.count('class="stage blamed"') == 1
    assert graph.count('class="stage suspect"') == 1
    assert "has findings, which the suspect explains better" in page


def test_a_chart_shows_band_baseline_and_what_was_not_finite(page):
    figure = page[page.index("<figure>") : page.index("</figure>")]

    assert 'class="band"' in figure
    assert 'class="reference"' in figure
    assert "step 29: 0.9" in figure
    assert "step 30: NaN or absent" in figure
    assert 'class="since"' in figure


@pytest.mark.parametrize(
    "values",
    [(math.nan,) * 4, (math.inf,) * 4, (0.0,) * 4, (1e300, -1e300, 1e-300, 0.0), (5e-324, 0.0, 0.0, 0.0)],
)
def test_a_chart_survives_any_numbers(values):
    nothing = (math.nan,) * 4

    page = incident_html(
        INCIDENT, [replace(CHART, values=values, reference=nothing, low=(-math.inf,) * 4, high=(math.inf,) * 4)]
    )

    assert "nan" not in page[page.index("<figure>") : page.index("</figure>")].replace("NaN", "")


def test_a_long_series_stays_small_and_keeps_its_marks():
    steps = tuple(range(5000))
    flat = (0.5,) * 5000
    chart = Chart("m", "rollout", steps, flat, flat, (0.4,) * 5000, (0.6,) * 5000, (4321,))

    page = incident_html(INCIDENT, [chart])

    assert "step 4321" in page
    assert len(page) < 150_000


def test_an_incident_with_nothing_but_its_name_is_shown():
    bare = replace(INCIDENT, suspects=(), findings=(), capture=None, receipt=None, triage=None, because="", notes=())

    parse(incident_html(bare))


def test_advice_is_a_command_that_a_shell_takes_as_meant():
    commands = [command for _, _, command in advice(INCIDENT)]

    assert ["sentinel", "triage", "/d/t t", "/d/g"] in commands
    assert "&#x27;/d/t t&#x27;" in incident_html(INCIDENT)


def test_weights_that_differ_lead_to_the_checklist():
    weights = replace(INCIDENT, triage=replace(TRIAGE, first=replace(FIRST, direction="parameters")))

    assert any(command[1:2] == ["preflight"] for _, _, command in advice(weights))


def test_nothing_deeper_is_advised_where_the_module_is_one_operation():
    alone = replace(INCIDENT, triage=replace(TRIAGE, first=replace(FIRST, operation="linear")))

    deeper = [command for _, _, command in advice(INCIDENT) if "mix" in command]
    (told,) = [english for english, _, command in advice(alone) if "one operation" in english and not command]
    assert deeper
    assert not any("mix" in command for _, _, command in advice(alone))
    assert "linear" in told


def test_a_dump_that_is_not_comparable_leads_to_a_golden_made_to_order():
    lost = replace(INCIDENT, triage=replace(TRIAGE, verdict="not_comparable", first=None))

    assert any(command[1:3] == ["captures", "plan"] for _, _, command in advice(lost))


def test_only_tag_makes_markup():
    assert tag("p", "<b>", tag("i", "x"), title='"') == '<p title="&quot;">&lt;b&gt;<i>x</i></p>'
    assert isinstance(tag("p"), Markup)


def test_sizes_are_read_at_a_glance():
    assert [size_text(size) for size in (0, 999, 1000, 4_400_000, 10**15)] == [
        "0 B",
        "999 B",
        "1 kB",
        "4.4 MB",
        "1e+03 TB",
    ]


def test_rollout_samples_stand_beside_the_baselines_and_are_never_markup():
    rows = (
        RolloutRow("q1", "same start, then this", 1.0),
        RolloutRow("q2", HOSTILE, 0.0),
        RolloutRow("q3", "new", None),
    )
    golden = (RolloutRow("q1", "same start, then that", 0.5), RolloutRow("q2", "an answer", 1.0))

    parsed = parse(incident_html(INCIDENT, samples=pair_samples(30, rows, golden)))

    text = "".join(parsed.text)
    assert "script" not in parsed.tags
    assert "img" not in parsed.tags
    assert not [name for _, name, _ in parsed.attributes if name.startswith("on")]
    assert "same start, then th" in text
    assert "<script>alert(1)</script>" in text
    assert "the baseline has no answer to this prompt" in text
    assert parsed.tags.count("mark") == 4


def test_what_lies_beside_the_page_is_linked_by_a_path_below_it():
    parsed = parse(incident_html(INCIDENT, beside=("msprobe/compare/a b.csv", 'msprobe/x"onclick="y.db')))

    links = [value for tag_name, name, value in parsed.attributes if (tag_name, name) == ("a", "href")]
    assert links == ["msprobe/compare/a%20b.csv", "msprobe/x%22onclick%3D%22y.db"]


def test_checklist_differences_that_could_explain_it_have_a_section_of_their_own():
    incident = replace(INCIDENT, notes=(f"{EXPLAINS}HCCL_DETERMINISTIC is unset", "ordered a dump"))

    text = "".join(parse(incident_html(incident)).text)

    assert "Checklist differences that could explain it" in text
    assert text.count("HCCL_DETERMINISTIC is unset") == 1
    assert text.index("HCCL_DETERMINISTIC") < text.index("ordered a dump")


def test_sentences_of_findings_suspects_dump_and_notes_stand_in_both_languages():
    finding = replace(INCIDENT.findings[0], because="actor/grad_norm is NaN at step 29; it was 0.5 before.")
    why = "model.norm: inputs agree, output.0 does not: norm 3 against 4, 12 times what is allowed there"
    triage = replace(TRIAGE, first=replace(FIRST, why=why), suspects=(), notes=("3 names mapped as asked",))
    incident = replace(
        INCIDENT,
        because=finding.because,
        findings=(finding,),
        suspects=(Suspect("actor_update", 0.7, "updates are skipped"),),
        triage=triage,
        notes=("Came back at step 31.",),
    )

    page = incident_html(incident, language="zh")

    for english, chinese in (
        (finding.because, "第 29 步 actor/grad_norm 为 NaN，此前为 0.5。"),
        ("updates are skipped", "更新被跳过"),
        (why, "model.norm：输入一致，output.0 不一致：norm 3 对 4，为该处容许值的 12 倍"),
        ("3 names mapped as asked", "按要求映射了 3 个名称"),
        ("Came back at step 31.", "第 31 步再次出现。"),
    ):
        pair = f'<span class="en" lang="en">{english}</span><span class="zh" lang="zh">{chinese}</span>'
        assert pair in page
        assert page.count(english) == page.count(pair)


def test_a_small_confidence_is_not_none():
    incident = replace(INCIDENT, suspects=(Suspect("actor_update", 0.99), Suspect("data", 0.002)))

    assert "&lt;1%" in incident_html(incident)


@pytest.mark.live
@pytest.mark.timeout(180)
@pytest.mark.parametrize("language", ["en", "zh"])
def test_a_browser_opens_the_page_without_an_error_in_either_language(tmp_path, need, language):
    """The policy of the page turns every request into an error on the console."""
    need("chromium")
    samples = pair_samples(30, (RolloutRow("q", HOSTILE, 0.0),), ())
    page, shot = tmp_path / "report.html", tmp_path / "shot.png"
    page.write_text(incident_html(INCIDENT, [CHART], language=language, samples=samples), encoding="utf-8")
    command = [shutil.which("chromium"), "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr"]

    done = subprocess.run(
        [*command, "--window-size=1100,2400", f"--screenshot={shot}", page.as_uri()],
        capture_output=True,
        text=True,
        check=True,
    )

    assert "CONSOLE" not in done.stderr
    assert shot.stat().st_size > 50_000
