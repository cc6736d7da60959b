# SPDX-License-Identifier: Apache-2.0
"""The four dashboards: overview of runs, one run, capture cost, daemon health."""

from __future__ import annotations

from typing import Any

from grafana_foundation_sdk.builders import dashboard
from grafana_foundation_sdk.models import common as looks
from pieces import (
    BAD_IF_ANY,
    GREEN,
    GREY,
    ORANGE,
    RED,
    TOLERANCES,
    against_band,
    bands,
    bars,
    board,
    choice,
    curves,
    listing,
    mark,
    now,
    number,
    over_time,
    rows,
    words,
)

YES_NO = words(_1=("yes", GREEN), _0=("no", RED))


def all_boards() -> list[dashboard.Dashboard]:
    """Every dashboard, in the order of the menu."""
    return [runs(), one_run(), captures(), daemon()]


def runs() -> dashboard.Dashboard:
    """All runs at a glance."""
    made = board(
        "sentinel-runs",
        "Sentinel / Runs",
        "Every watched run: how it stands against its baseline, and what is going on.",
    )
    made = made.annotation(mark("Incidents", RED, "sentinel_incident_opened_step"))
    panels: list[Any] = [
        number(
            "Runs by state",
            "short",
            "Runs that are watched, by state.",
            now("sum by (state) (sentinel_run_state)", "{{state}}"),
            w=12,
        ),
        number(
            "Open incidents",
            "short",
            "Incidents that are going on, all runs together.",
            now("sum(run:sentinel_incidents_open:sum)"),
            BAD_IF_ANY,
        ),
        number(
            "Furthest deviation",
            "short",
            "Largest deviation from a baseline, in tolerances; above 1 is out.",
            now("max(run:sentinel_metric_deviation_ratio:max)"),
            TOLERANCES,
        ),
        number(
            "Oldest step",
            "s",
            "Age of the newest step of the run that is quiet for longest.",
            now(
                'max(time() - sentinel_run_last_step_timestamp_seconds and on (run) sentinel_run_state{state!~"finished|waiting"} == 1)'
            ),
        ),
        listing(
            "Runs",
            "One row a run. Deviation is in tolerances: above 1 is out of what the baseline allows.",
            {
                "last step": rows("sum by (run) (sentinel_run_last_step)"),
                "seconds since": rows("max by (run) (time() - sentinel_run_last_step_timestamp_seconds)"),
                "deviation": rows("run:sentinel_metric_deviation_ratio:max"),
                "open incidents": rows("run:sentinel_incidents_open:sum"),
                "baseline in use": rows("min by (run) (sentinel_run_baseline_usable)"),
                "warnings": rows("max by (run) (sentinel_run_warnings)"),
            },
            (),
            h=7,
        ),
        listing(
            "Open incidents",
            "What is going on, and since which step. The status page of the daemon has the reports.",
            {"since step": rows("sentinel_incident_opened_step")},
            (),
            h=5,
        ),
        bands(
            "State of each run",
            "short",
            "Whether an incident is going on.",
            over_time("run:sentinel_incidents_open:sum", "{{run}}"),
            BAD_IF_ANY,
        ),
        curves(
            "Furthest deviation",
            "short",
            "Largest deviation of any metric of a run, in tolerances.",
            over_time("run:sentinel_metric_deviation_ratio:max", "{{run}}"),
        ),
        curves(
            "Seconds a step",
            "s",
            "Time between steps, averaged over a quarter of an hour.",
            over_time("run:sentinel_step_seconds:avg15m", "{{run}}"),
        ),
        curves(
            "Incidents opened",
            "short",
            "Incidents opened within an hour, by kind.",
            over_time("sum by (run, kind) (increase(sentinel_incidents_total[1h])) > 0", "{{run}} {{kind}}"),
        ),
        bars(
            "Deviation by stage",
            "short",
            "Largest deviation in each stage, over all runs, in tolerances.",
            now("max by (stage) (run_stage:sentinel_metric_deviation_ratio:max)", "{{stage}}"),
            TOLERANCES,
        ),
    ]
    return _with(made, panels)


def one_run() -> dashboard.Dashboard:
    """One run against its baseline."""
    run = '{run="$run"}'
    made = board(
        "sentinel-run",
        "Sentinel / One run",
        "One run: each metric against the band that its baseline allows, incidents and dumps as marks.",
        choice("run", "Run", "label_values(sentinel_run_steps_total, run)"),
        choice("stage", "Stage", 'label_values(sentinel_metric_expected_high{run="$run"}, stage)', many=True),
        choice(
            "metric",
            "Metric",
            'label_values(sentinel_metric_expected_high{run="$run", stage=~"$stage"}, metric)',
            many=True,
        ),
    )
    made = made.annotation(mark("Incidents", RED, f"sentinel_incident_opened_step{run}"))
    made = made.annotation(mark("Dumps", ORANGE, f"sentinel_captures_going_on{run} > 0"))
    of_metric = '{run="$run", metric="$metric"}'
    value = f"sentinel_metric_value{run}"
    not_finite = f"({value} != {value}) or (abs({value}) == Inf)"
    panels: list[Any] = [
        number(
            "State",
            "short",
            "What the run is doing.",
            now(f"sentinel_run_state{run} == 1", "{{state}}"),
            words=looks.BigValueTextMode.NAME,
        ),
        number("Last step", "short", "Newest step that was judged.", now(f"sentinel_run_last_step{run}")),
        number("Since", "s", "Age of the newest step.", now(f"time() - sentinel_run_last_step_timestamp_seconds{run}")),
        number(
            "Open incidents",
            "short",
            "Incidents that are going on.",
            now(f"run:sentinel_incidents_open:sum{run}"),
            BAD_IF_ANY,
        ),
        number(
            "Furthest deviation",
            "short",
            "In tolerances; above 1 is out.",
            now(f"run:sentinel_metric_deviation_ratio:max{run}"),
            TOLERANCES,
        ),
        number(
            "Baseline in use",
            "short",
            "Without one, only the rules apply that need none.",
            now(f"sentinel_run_baseline_usable{run}"),
            ((0, RED), (1, GREEN)),
            mappings=YES_NO,
        ),
        bands(
            "Stages",
            "short",
            "Largest deviation in each stage, in tolerances, in the order of names. The first stage to turn red is the suspect.",
            over_time(f"run_stage:sentinel_metric_deviation_ratio:max{run}", "{{stage}}"),
            TOLERANCES,
            h=7,
        ),
        listing(
            "Open incidents",
            "What is going on in this run, and since which step.",
            {"since step": rows(f"sentinel_incident_opened_step{run}")},
            ("run",),
            w=10,
            h=6,
        ),
        listing(
            "Not finite",
            "Metrics whose last value is NaN or infinite; in curves they are gaps.",
            {"value": rows(not_finite)},
            ("run",),
            w=6,
            h=6,
        ),
        listing(
            "Warnings",
            "Codes of what the status page says about this run.",
            {"shown": rows(f"sentinel_run_warning{run}")},
            ("run",),
            w=4,
            h=6,
        ),
        listing(
            "Trainer's side",
            "Fuses of the trainer's side: 1 is burnt, that part is off.",
            {"burnt": rows(f"sentinel_trainer_fuse_burnt{run}")},
            ("run",),
            w=4,
            h=6,
        ),
        listing(
            "Furthest out",
            "The ten metrics that are furthest from the baseline, in tolerances.",
            {"tolerances": rows(f"topk(10, sentinel_metric_deviation_ratio{run})")},
            ("run",),
            w=12,
            h=8,
        ),
        curves(
            "Incidents opened",
            "short",
            "Incidents since the run began, by kind.",
            over_time(f"sentinel_incidents_total{run}", "{{kind}}"),
        ),
    ]
    made = _with(made, panels)
    each = against_band(
        "$metric",
        "short",
        "The run's value, and the band that the baseline allows at this step.",
        (
            over_time(f"sentinel_metric_value{of_metric}", "value"),
            over_time(f"sentinel_metric_expected_low{of_metric} > -Inf", "expected low"),
            over_time(f"sentinel_metric_expected_high{of_metric} < Inf", "expected high"),
        ),
        w=8,
        legend=False,
    )
    made = made.with_row(dashboard.Row("Metrics against the baseline"))
    return made.with_panel(each.repeat("metric").repeat_direction("h").max_per_row(3))


def captures() -> dashboard.Dashboard:
    """What dumps and verdicts cost."""
    run = '{run=~"$run"}'
    made = board(
        "sentinel-captures",
        "Sentinel / Capture cost",
        "What Sentinel costs the runs: dumps in bytes and seconds, waits for verdicts, and what became of each dump.",
        choice("run", "Run", "label_values(sentinel_run_steps_total, run)", many=True),
    )
    made = made.annotation(mark("Dumps", ORANGE, f"sentinel_captures_going_on{run} > 0"))
    of = 'run=~"$run"'
    panels: list[Any] = [
        number("Dumped", "bytes", "Bytes of all dumps.", now(f"sum(sentinel_capture_bytes_total{run})")),
        number(
            "Time taken", "s", "Seconds that dumps added to steps.", now(f"sum(sentinel_capture_seconds_total{run})")
        ),
        number(
            "Share of the time",
            "percentunit",
            "Seconds that dumps added to each second of the last hour.",
            now(f"max(run:sentinel_capture_seconds:rate1h{run})"),
            ((0, GREEN), (0.05, ORANGE), (0.2, RED)),
        ),
        number(
            "Going on",
            "short",
            "Dumps that are ordered or being written.",
            now(f"sum(sentinel_captures_going_on{run})"),
        ),
        number(
            "Came to nothing",
            "short",
            "Dumps that failed, expired, were skipped or are not whole.",
            now(f'sum(sentinel_captures_total{{{of}, outcome=~"failed|expired|skipped|partial"}})'),
            BAD_IF_ANY,
        ),
        number(
            "Budget refused",
            "short",
            "Incidents that were not dumped because the run's budget is spent.",
            now(f'sum(sentinel_captures_refused_total{{{of}, reason="budget"}})'),
            ((0, GREEN), (1, ORANGE)),
        ),
        bars(
            "Dumps by outcome",
            "short",
            "What became of the dumps.",
            now(f"sum by (outcome) (sentinel_captures_total{run})", "{{outcome}}"),
            ((0, GREY),),
        ),
        curves(
            "Bytes dumped",
            "bytes",
            "Bytes of all dumps of a run.",
            over_time(f"sum by (run) (sentinel_capture_bytes_total{run})", "{{run}}"),
        ),
        curves(
            "Seconds of dumping",
            "s",
            "Seconds that dumps added to the steps of a run.",
            over_time(f"sum by (run) (sentinel_capture_seconds_total{run})", "{{run}}"),
        ),
        curves(
            "Waiting for verdicts",
            "percentunit",
            "Seconds that the trainer waited for verdicts in each second.",
            over_time(f"run:sentinel_trainer_wait_seconds:rate15m{run}", "{{run}}"),
        ),
        curves(
            "Waits without a verdict",
            "short",
            "Waits of the trainer that ended without an answer, within a quarter of an hour.",
            over_time(f"sum by (run) (increase(sentinel_trainer_waits_expired_total{run}[15m]))", "{{run}}"),
        ),
        curves(
            "Refusals",
            "short",
            "Incidents that were not dumped, by reason.",
            over_time(f"sum by (run, reason) (sentinel_captures_refused_total{run})", "{{run}} {{reason}}"),
        ),
    ]
    return _with(made, panels)


def daemon() -> dashboard.Dashboard:
    """Whether Sentinel itself is well."""
    made = board(
        "sentinel-daemon",
        "Sentinel / Daemon",
        "Sentinel itself: whether it answers, how fast it judges, what it could not keep or send.",
        choice("instance", "Daemon", "label_values(sentinel_build_info, instance)", many=True),
    )
    at = '{instance=~"$instance"}'
    made = made.annotation(mark("Restarts", ORANGE, f"changes(sentinel_start_time_seconds{at}[1m]) > 0"))
    panels: list[Any] = [
        number(
            "Answers",
            "short",
            "Whether Prometheus can scrape the daemon.",
            now('up{job="sentinel", instance=~"$instance"}', "{{instance}}"),
            ((0, RED), (1, GREEN)),
            mappings=YES_NO,
        ),
        number(
            "Version",
            "short",
            "Of the daemon.",
            now(f"sentinel_build_info{at}", "{{version}}"),
            words=looks.BigValueTextMode.NAME,
        ),
        number("Up for", "s", "Since its last start.", now(f"time() - sentinel_start_time_seconds{at}")),
        number("Restarts", "short", "Since it was first started.", now(f"sentinel_restarts{at}")),
        number(
            "Verdict, p99",
            "s",
            "99 of 100 verdicts of the last quarter of an hour took no longer.",
            now(f"instance:sentinel_verdict_seconds:p99_15m{at}"),
            ((0, GREEN), (0.02, ORANGE), (0.05, RED)),
        ),
        number(
            "Messages not taken",
            "short",
            "Alerts of Sentinel's own that no receiver took.",
            now(f"sum(sentinel_alerts_failed_total{at})"),
            BAD_IF_ANY,
        ),
        curves(
            "Verdicts",
            "s",
            "From the arrival of a report to its verdict. A trainer waits for 50 ms at most.",
            over_time(
                f"histogram_quantile(0.5, sum by (le) (rate(sentinel_verdict_seconds_bucket{at}[$__rate_interval])))",
                "median",
            ),
            over_time(
                f"histogram_quantile(0.99, sum by (le) (rate(sentinel_verdict_seconds_bucket{at}[$__rate_interval])))",
                "p99",
            ),
        ),
        curves(
            "Steps judged",
            "ops",
            "Steps a second, by run.",
            over_time(f"sum by (run) (rate(sentinel_run_steps_total{at}[$__rate_interval]))", "{{run}}"),
        ),
        curves(
            "Scrape",
            "s",
            "How long a scrape of the daemon takes.",
            over_time('scrape_duration_seconds{job="sentinel", instance=~"$instance"}', "{{instance}}"),
        ),
        curves(
            "Series",
            "short",
            "Series that a scrape brings.",
            over_time('scrape_samples_scraped{job="sentinel", instance=~"$instance"}', "{{instance}}"),
        ),
        bands(
            "Journals",
            "short",
            "Whether each run's journal can be written.",
            over_time(f"sentinel_run_journal_writable{at}", "{{run}}"),
            ((0, RED), (1, GREEN)),
            mappings=YES_NO,
            w=12,
        ),
        curves(
            "Steps dropped",
            "short",
            "Steps that trainers had to drop, within a quarter of an hour.",
            over_time(f"sum by (run) (increase(sentinel_trainer_dropped_steps_total{at}[15m]))", "{{run}}"),
            h=7,
        ),
        listing(
            "Warnings",
            "What is wrong with the daemon itself; the status page has the sentences.",
            {"shown": rows(f"sentinel_daemon_warning{at}")},
            (),
            w=12,
            h=6,
        ),
        listing(
            "Alerts",
            "Alerts of Sentinel that fire now.",
            {"firing": rows('ALERTS{alertname=~"Sentinel.*", alertstate="firing"}')},
            ("alertstate",),
            w=12,
            h=6,
        ),
    ]
    return _with(made, panels)


def _with(made: dashboard.Dashboard, panels: list[Any]) -> dashboard.Dashboard:
    for panel in panels:
        made = made.with_panel(panel)
    return made
