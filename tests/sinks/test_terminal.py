"""Tables and the live view."""

import io
import math

from rich.console import Console

from sentinel.sinks import terminal


def printed(show, *args):
    out = io.StringIO()
    show(Console(file=out, width=160, markup=False), *args)
    return out.getvalue()


def status(**other):
    row = {
        "run": "[bold]x[/bold]",
        "state": "watching",
        "last_step": 3,
        "seconds_since_step": 300.0,
        "baseline": None,
        "regime": "alone",
        "open_incidents": 0,
        "captures": [],
        "warnings": ["no_baseline: none is named"],
        "metrics": [
            {
                "metric": "a",
                "value": math.nan,
                "expected": {"low": 0.0, "high": 1.0},
                "score": math.inf,
                "series": [(1, 1.0), (2, math.nan)],
            }
        ],
        "incidents": [],
    }
    return {
        "daemon": "running",
        "endpoint": "http://x",
        "runs": [row],
        "remarks": ["http: taken"],
        "faults": [],
    } | other


def test_the_status_table_shows_names_as_they_are():
    """Brackets are no markup, a missing baseline is said."""
    text = printed(terminal.show_status, status())

    for part in ("[bold]x[/bold]", "watching", "5 min", "none", "no_baseline: none is named", "http: taken"):
        assert part in text


def test_an_absent_daemon_is_one_line():
    """With the reason."""
    text = printed(terminal.show_status, {"daemon": "absent", "why": "no cluster", "runs": []})

    assert text == "daemon absent: no cluster\n"


def test_empty_lists_are_words():
    """Nothing is said to be nothing."""
    assert printed(terminal.show_incidents, []) == "no incidents\n"
    assert printed(terminal.show_captures, []) == "no captures\n"


def test_the_live_view_draws_frames_until_it_is_left():
    """Each frame is what the daemon says then."""
    out, asked = io.StringIO(), []

    def look():
        asked.append(1)
        return status()

    console = Console(file=out, width=160, markup=False, force_terminal=True)
    terminal.live(look, console=console, pause=lambda seconds: None, frames=3)

    assert len(asked) == 3
    assert "inf" in out.getvalue()


def test_a_line_of_blocks():
    """Low to high, `!` where a value is not finite."""
    assert terminal.sparkline([1.0, 2.0, math.nan, 3.0]) == "▁▄!█"
    assert terminal.sparkline([5.0, 5.0]) == "▁▁"
    assert terminal.sparkline([math.inf]) == "!"
    assert len(terminal.sparkline([float(i) for i in range(100)])) == 30
