# SPDX-License-Identifier: Apache-2.0
"""Panels, queries and variables in the one style of Sentinel's dashboards.

Each panel has a title, a unit and a description; each query names the datasource variable.
"""

from __future__ import annotations

from typing import Any

from grafana_foundation_sdk.builders import (
    bargauge,
    common,
    dashboard,
    prometheus,
    stat,
    statetimeline,
    table,
    timeseries,
)
from grafana_foundation_sdk.models import common as looks
from grafana_foundation_sdk.models import dashboard as models
from grafana_foundation_sdk.models import prometheus as prometheus_models

SOURCE = models.DataSourceRef(type_val="prometheus", uid="${datasource}")
TAG = "sentinel"
RED, ORANGE, GREEN, BLUE, GREY = "red", "orange", "green", "blue", "text"
Query = prometheus.Dataquery


def board(uid: str, title: str, description: str, *variables: Any) -> dashboard.Dashboard:
    """A dashboard with what all of ours share."""
    links = dashboard.DashboardLink("Sentinel").type(models.DashboardLinkType.DASHBOARDS).tags([TAG])
    made = (
        dashboard.Dashboard(title)
        .uid(uid)
        .description(description)
        .tags([TAG])
        .timezone("browser")
        .editable()
        .tooltip(models.DashboardCursorSync.CROSSHAIR)
        .time("now-6h", "now")
        .refresh("30s")
        .link(links.as_dropdown(True).include_vars(True).keep_time(True))
        .with_variable(dashboard.DatasourceVariable("datasource").label("Data source").type("prometheus"))
    )
    for variable in variables:
        made = made.with_variable(variable)
    return made


def choice(name: str, label: str, query: str, *, many: bool = False) -> dashboard.QueryVariable:
    """A variable whose values are those of a label."""
    made = dashboard.QueryVariable(name).label(label).query(query).datasource(SOURCE).multi(many)
    made = made.refresh(models.VariableRefresh.ON_TIME_RANGE_CHANGED).sort(models.VariableSort.ALPHABETICAL_ASC)
    if many:
        all_of_them = models.VariableOption(selected=True, text=["All"], value=["$__all"])
        made = made.include_all(True).current(all_of_them)
    return made


def mark(name: str, colour: str, expr: str) -> dashboard.AnnotationQuery:
    """Marks on every time axis while `expr` has a value."""
    return dashboard.AnnotationQuery().name(name).datasource(SOURCE).enable(True).icon_color(colour).expr(expr)


def over_time(expr: str, legend: str = "__auto") -> Query:
    """A query over the time range."""
    return Query().expr(expr).legend_format(legend).range().datasource(SOURCE)


def now(expr: str, legend: str = "__auto") -> Query:
    """A query for the last value."""
    return Query().expr(expr).legend_format(legend).instant().datasource(SOURCE)


def rows(expr: str) -> Query:
    """A query for the last values, one row a series."""
    return now(expr).format(prometheus_models.PromQueryFormat.TABLE)


def limits(*steps: tuple[float, str]) -> dashboard.ThresholdsConfig:
    """Colours from a value on; Grafana gives the first no lower end."""
    made = [models.Threshold(value=value, color=colour) for value, colour in steps]
    return dashboard.ThresholdsConfig().mode(models.ThresholdsMode.ABSOLUTE).steps(made)


BAD_IF_ANY = ((0, GREEN), (1, RED))
TOLERANCES = ((0, GREEN), (0.5, "yellow"), (1, RED))


def named(queries: tuple[Query, ...]) -> list[Query]:
    """The queries as A, B, C."""
    return [query.ref_id(chr(ord("A") + place)) for place, query in enumerate(queries)]


def curves(title: str, unit: str, text: str, *queries: Query, w: int = 12, h: int = 8, legend: bool = True) -> Any:
    """Curves over time."""
    panel = timeseries.Panel().title(title).unit(unit).description(text).datasource(SOURCE).span(w).height(h)
    shown = common.VizLegendOptions().show_legend(legend).placement(looks.LegendPlacement.BOTTOM)
    panel = panel.legend(shown.display_mode(looks.LegendDisplayMode.LIST).calcs([]))
    tooltip = common.VizTooltipOptions().mode(looks.TooltipDisplayMode.MULTI).sort(looks.SortOrder.DESCENDING)
    panel = panel.tooltip(tooltip).line_width(1).fill_opacity(0).show_points(looks.VisibilityMode.AUTO)
    return panel.targets(named(queries))


def against_band(title: str, unit: str, text: str, queries: tuple[Query, Query, Query], **size: Any) -> Any:
    """A value with the band that was expected around it; the queries for the edges are named `expected low`, `expected high`."""
    edge = [
        models.DynamicConfigValue(id_val="custom.lineWidth", value=0),
        models.DynamicConfigValue(id_val="color", value={"mode": "fixed", "fixedColor": BLUE}),
    ]
    filled = [
        models.DynamicConfigValue(id_val="custom.fillBelowTo", value="expected low"),
        models.DynamicConfigValue(id_val="custom.fillOpacity", value=15),
    ]
    panel = curves(title, unit, text, *queries, **size)
    return panel.override_by_name("expected low", edge).override_by_name("expected high", edge + filled)


def number(
    title: str, unit: str, text: str, query: Query, steps: Any = ((0, GREY),), *, w: int = 4, **other: Any
) -> Any:
    """One or a few big numbers."""
    panel = stat.Panel().title(title).unit(unit).description(text).datasource(SOURCE).span(w).height(4)
    panel = panel.thresholds(limits(*steps)).color_mode(looks.BigValueColorMode.VALUE)
    panel = panel.graph_mode(other.get("graph", looks.BigValueGraphMode.NONE))
    panel = panel.text_mode(other.get("words", looks.BigValueTextMode.AUTO))
    last = common.ReduceDataOptions().calcs(["lastNotNull"]).values(False)
    return panel.reduce_options(last).mappings(other.get("mappings", [])).targets(named((query,)))


def bars(title: str, unit: str, text: str, query: Query, steps: Any, *, w: int = 12, h: int = 8) -> Any:
    """One bar a series."""
    panel = bargauge.Panel().title(title).unit(unit).description(text).datasource(SOURCE).span(w).height(h)
    last = common.ReduceDataOptions().calcs(["lastNotNull"]).values(False)
    panel = panel.reduce_options(last).orientation(looks.VizOrientation.HORIZONTAL).min(0).thresholds(limits(*steps))
    return panel.display_mode(looks.BarGaugeDisplayMode.BASIC).targets(named((query,)))


def bands(
    title: str, unit: str, text: str, query: Query, steps: Any, *, w: int = 24, h: int = 7, mappings: Any = ()
) -> Any:
    """One coloured band a series over time."""
    panel = statetimeline.Panel().title(title).unit(unit).description(text).datasource(SOURCE).span(w).height(h)
    panel = panel.thresholds(limits(*steps)).mappings(list(mappings)).merge_values(True)
    colour = dashboard.FieldColor().mode(models.FieldColorModeId.THRESHOLDS)
    return panel.color_scheme(colour).show_value(looks.VisibilityMode.NEVER).targets(named((query,)))


def listing(
    title: str, text: str, queries: dict[str, Query], hidden: tuple[str, ...], *, w: int = 24, h: int = 8
) -> Any:
    """A table: one row for each set of labels, one column for each query.

    Args:
        title: of the panel.
        text: its description.
        queries: title of the column -> query.
        hidden: labels that are not shown.
        w: width, of 24.
        h: height.
    """
    panel = table.Panel().title(title).unit("short").description(text).datasource(SOURCE).span(w).height(h)
    names = [f"Value #{chr(ord('A') + place)}" if len(queries) > 1 else "Value" for place in range(len(queries))]
    renamed = dict(zip(names, queries, strict=True))
    away = dict.fromkeys(("Time", "__name__", "job", "instance", *hidden), True)
    return (
        panel.targets(named(tuple(queries.values())))
        .with_transformation(models.DataTransformerConfig(id_val="merge", options={}))
        .with_transformation(
            models.DataTransformerConfig(id_val="organize", options={"excludeByName": away, "renameByName": renamed})
        )
    )


def words(**texts: tuple[str, str]) -> list[Any]:
    """Value -> (text, colour), for values that stand for something; `_1` means 1."""
    options = {
        value.lstrip("_"): models.ValueMappingResult(text=text, color=colour) for value, (text, colour) in texts.items()
    }
    return [models.ValueMap(options=options)]
