"""The status page."""

import html.parser
import shutil
import subprocess

import pytest

from sentinel.sinks import status_page
from sentinel.sinks.durations import short

EVIL = "<script>alert('x')</script>\"&"


def row(**other):
    given = {
        "run": "my run",
        "state": "incident",
        "last_step": 9,
        "seconds_since_step": 12.0,
        "baseline": "/gold.zip",
        "open_incidents": 1,
        "regime": "replayed",
        "warnings": [],
        "captures": [],
        "incidents": [
            {
                "id": "my run:1",
                "kind": "drift",
                "state": "open",
                "severity": "critical",
                "stage": "actor_update",
                "opened_at_step": 8,
                "because": "grad_norm left its band",
            }
        ],
        "metrics": [
            {
                "metric": "actor/grad_norm",
                "value": 9.0,
                "expected": {"low": 1.0, "high": 2.0},
                "score": 7.5,
                "series": [[7, 1.0], [8, float("nan")], [9, 9.0]],
            }
        ],
    }
    return given | other


def page(*rows, language="en", **other):
    document = {"runs": list(rows), "version": "1", "host": "h", "restarts": 0, "remarks": [], "faults": []}
    return status_page.render(document | other, language)


class Outline(html.parser.HTMLParser):
    """Tags, attributes and text of a page."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.links, self.text, self.open = [], [], "", []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.links += [value for name, value in attrs if name in ("href", "src")]
        if tag not in ("meta", "br", "circle", "rect", "polyline"):
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open[-1:] != ["style"]:
            self.text += data


def test_it_shows_the_run_its_incident_and_its_metrics():
    """What, where, since when, and a link to the report."""
    seen = Outline(page(row()))

    for part in ("my run", "incident", "step 9", "12 s ago", "baseline /gold.zip", "grad_norm left its band", "7.5"):
        assert part in seen.text
    assert "/reports/my%20run%3A1" in seen.links
    assert seen.open == []


def test_it_speaks_chinese():
    """The same page in the other language, with a link to this one."""
    seen = Outline(page(row(), language="zh"))

    assert "异常事件" in seen.text
    assert "?lang=en" in seen.links


def test_nothing_is_loaded_and_nothing_runs():
    """No script, and no address but its own."""
    seen = Outline(page(row()))

    assert "script" not in seen.tags
    assert all(link.startswith(("/", "?")) for link in seen.links)


def test_what_users_and_models_wrote_is_escaped():
    """Everywhere: names, sentences, warnings, captures, remarks."""
    order = {"first_step": 1, "last_step": 1, "stages": [EVIL], "why": EVIL}
    incident = row()["incidents"][0] | dict.fromkeys(("id", "kind", "state", "severity", "stage", "because"), EVIL)
    evil = row(
        run=EVIL,
        state=EVIL,
        baseline=EVIL,
        regime=EVIL,
        warnings=[EVIL],
        incidents=[incident],
        captures=[{"id": EVIL, "state": EVIL, "order": order, "receipt": {**order, "outcome": EVIL}}],
        metrics=[row()["metrics"][0] | {"metric": EVIL}],
    )
    for language in ("en", "zh"):
        text = page(evil, language=language, version=EVIL, host=EVIL, restarts=EVIL, remarks=[EVIL], faults=[EVIL])

        assert "<script" not in text
        assert Outline(text).open == []


def test_a_run_without_a_baseline_says_so():
    """Never mistaken for a healthy one."""
    assert "no baseline" in Outline(page(row(baseline=None))).text


def test_trouble_comes_first_and_finished_runs_last():
    """The order of the page is the order of need."""
    text = page(
        row(run="done", state="finished", open_incidents=0),
        row(run="calm", state="watching", open_incidents=0),
        row(run="zzz"),
    )

    assert text.index(">zzz<") < text.index(">calm<") < text.index(">done<")
    assert "<title>(1) Sentinel</title>" in text


def test_an_empty_daemon_says_what_to_do():
    """No run yet."""
    assert "SENTINEL_RUN" in page()


@pytest.mark.parametrize(
    "series", [[], [[1, 1.0]], [[1, float("nan")], [2, float("inf")]], [[1, 5.0], [2, 5.0]], [[1, 1e308], [2, -1e308]]]
)
def test_any_series_can_be_drawn(series):
    """Empty, constant, without one finite value, or of extreme range."""
    for band in (None, {"low": 0.0, "high": 1.0}, {"low": float("-inf"), "high": 2.0}):
        drawn = status_page.sparkline(series, band)

        assert "nan" not in drawn
        assert "inf" not in drawn


def test_durations():
    """In their largest sensible unit."""
    assert [short(s) for s in (0.2, 119, 121, 7201, 200_000)] == ["0 s", "119 s", "2 min", "2 h", "2 d"]


@pytest.mark.live
@pytest.mark.timeout(90)
def test_a_browser_draws_it_on_a_phone_without_complaint(tmp_path, need):
    """Headless Chromium at phone width: no error on its console, nothing wider than the screen."""
    need("chromium")
    (tmp_path / "page.html").write_text(page(row(), row(run="other")))
    command = [shutil.which("chromium"), "--headless", "--no-sandbox", "--disable-gpu", "--window-size=500,900"]
    picture = tmp_path / "page.png"
    done = subprocess.run(
        [*command, "--enable-logging=stderr", f"--screenshot={picture}", f"file://{tmp_path}/page.html"],
        capture_output=True,
        text=True,
        check=False,
        timeout=80,
    )

    assert picture.stat().st_size > 10_000
    assert "CONSOLE" not in done.stderr
