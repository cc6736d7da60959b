# SPDX-License-Identifier: Apache-2.0
"""The dashboards as Grafana would ask a Prometheus for them."""

import json
import re
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "grafana/dashboards"
BOARDS = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(FOLDER.glob("*.json"))}
INTERVALS = {"$__rate_interval": "1m", "$__interval": "15s", "$__range": "1h"}


def panels():
    """(board, panel) for every panel but rows, nested ones too."""
    for name, board in BOARDS.items():
        for panel in board["panels"]:
            for inner in (panel, *panel.get("panels", ())):
                if inner["type"] != "row":
                    yield name, inner


def queries():
    """(board, what, expression, instant) for every query of a panel or an annotation."""
    for name, panel in panels():
        for target in panel["targets"]:
            yield name, f"{panel['title']} {target['refId']}", target["expr"], bool(target.get("instant"))
    for name, board in BOARDS.items():
        for annotation in board["annotations"]["list"]:
            yield name, f"marks {annotation['name']}", annotation["expr"], False


def variables():
    """(board, variable) for every variable that Prometheus is asked for."""
    for name, board in BOARDS.items():
        for variable in board["templating"]["list"]:
            if variable["type"] == "query":
                yield name, variable


def label_of(query):
    """(series selector, label) of a `label_values` query."""
    return re.fullmatch(r"label_values\((.*), *(\w+)\)", query).groups()


def _quoted(text):
    """For a regular expression of Prometheus, which knows no other escapes than these."""
    return re.sub(r"[\\.+*?()|\[\]{}^$]", r"\\\g<0>", text)


def filled(expression, values):
    """The expression with intervals and variables put in; several values become an alternative."""
    for name, text in INTERVALS.items():
        expression = expression.replace(name, text)
    for name, found in values.items():
        text = found[0] if len(found) == 1 else "(" + "|".join(map(_quoted, found)) + ")"
        text = text.replace("\\", "\\\\").replace('"', '\\"')
        expression = re.sub(rf"\$(?:{name}\b|{{{name}}})", lambda _, text=text: text, expression)
    return expression
