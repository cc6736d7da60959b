"""The frame of the command line."""

import argparse
import io
import json
import pathlib
import subprocess
import sys

import pytest

from sentinel import cli
from sentinel.cli import output
from sentinel.errors import SettingsError
from sentinel.sinks import json_text


def leaves(parser, path=()):
    """Every verb of the parser with its path of words."""
    groups = [a for a in parser._actions if isinstance(a, argparse._SubParsersAction)]
    if not groups:
        yield path, parser
    for group in groups:
        for name, child in group.choices.items():
            yield from leaves(child, (*path, name))


def verb(run):
    """A parser with one verb, `x`, that calls `run`."""

    def build():
        parser = cli.OneLineParser(prog="sentinel")
        parser.add_argument("--traceback", action="store_true")
        child = parser.add_subparsers(required=True).add_parser("x")
        output.add_json_flag(child)
        child.set_defaults(run=run)
        return parser

    return build


def test_help_loads_nothing_heavy():
    """`sentinel --help` imports neither Ray nor torch nor numpy nor rich."""
    code = (
        "import sys; from sentinel.cli import main; code = main(['--help']);"
        "heavy = sorted({'ray','torch','numpy','rich','yaml','pyarrow','prometheus_client','msgspec'} & set(sys.modules));"
        "print('HEAVY', heavy, code)"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout

    assert "HEAVY [] 0" in out


def test_the_verbs_are_those_of_the_contract():
    """A verb is released: it is not renamed or lost by accident."""
    verbs = {" ".join(path) for path, _ in leaves(cli.build_parser())}

    assert verbs == {
        "read",
        "replay",
        "baseline record",
        "baseline show",
        "baseline add",
        "baseline diff",
        "up",
        "status",
        "reload",
        "down",
        "top",
        "attach",
        "incidents list",
        "incidents show",
        "incidents report",
        "captures list",
        "captures request",
        "captures cancel",
        "captures plan",
        "captures rollout",
        "rollout check",
        "rollout cross",
        "stub record",
        "stub replay",
        "triage",
        "preflight",
        "fingerprint",
        "demo",
        "evaluate",
        "doctor",
    }


def test_every_verb_has_json_except_the_live_view():
    """Scripts can ask every verb for JSON; `top` is for terminals only."""
    without = [
        " ".join(path) for path, parser in leaves(cli.build_parser()) if "--json" not in parser._option_string_actions
    ]

    assert without == ["top"]


def test_every_verb_can_be_run():
    """No parser ends without a function to call."""
    missing = [" ".join(path) for path, parser in leaves(cli.build_parser()) if parser.get_default("run") is None]

    assert missing == []


@pytest.mark.parametrize("argv", [[], ["no-such-verb"], ["status", "--no-such-option"], ["incidents", "show"]])
def test_a_wrong_command_is_one_line_and_exit_2(argv, capsys):
    """The complaint about a wrong command is one line."""
    assert cli.main(argv) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_an_error_of_ours_is_one_line_and_exit_2(monkeypatch, capsys):
    """A SentinelError is printed as one line, without a stack trace."""

    def run(args):
        raise SettingsError("sentinel.yaml: 'bseline'\nis no setting")

    monkeypatch.setattr(cli, "build_parser", verb(run))

    assert cli.main(["x"]) == 2
    assert capsys.readouterr().err == "sentinel: sentinel.yaml: 'bseline' is no setting\n"


def test_a_missing_file_is_one_line_and_exit_2(monkeypatch, capsys):
    """An OSError names the file in one line."""
    monkeypatch.setattr(cli, "build_parser", verb(lambda args: pathlib.Path("/no/such/file").read_text()))

    assert cli.main(["x"]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_a_bug_is_one_line_unless_asked(monkeypatch, capsys):
    """An internal error names its type in one line; `--traceback` lets it through."""
    monkeypatch.setattr(cli, "build_parser", verb(lambda args: 1 / 0))

    assert cli.main(["x"]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert "ZeroDivisionError" in err
    with pytest.raises(ZeroDivisionError):
        cli.main(["--traceback", "x"])


def test_the_exit_code_of_the_verb_is_the_exit_code(monkeypatch):
    """A verb that found something wrong exits with 1."""
    monkeypatch.setattr(cli, "build_parser", verb(lambda args: 1))

    assert cli.main(["x"]) == 1


def test_a_closed_pipe_is_no_error():
    """`sentinel ... | head -1` prints no complaint."""
    code = (
        "import sys; from sentinel import cli; import argparse\n"
        "def build():\n"
        "    p = cli.OneLineParser(prog='s'); p.add_argument('--traceback', action='store_true')\n"
        "    c = p.add_subparsers().add_parser('x')\n"
        "    c.set_defaults(run=lambda a: print('line\\n' * 200000) or 0); return p\n"
        "cli.build_parser = build\n"
        "sys.exit(cli.main(['x']))\n"
    )
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", f'"{sys.executable}" -c "$1" | head -1', "_", code],
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.stderr == ""
    assert done.returncode == 0


def test_json_holds_no_bare_nan(capsys):
    """Numbers that are not finite are written as text."""
    document = {"a": float("nan"), "b": [float("inf"), -float("inf")], "c": 1.5, 3: True}
    output.emit(argparse.Namespace(json=True), document, lambda console: None)

    assert json.loads(capsys.readouterr().out) == {"a": "nan", "b": ["inf", "-inf"], "c": 1.5, "3": True}


def test_without_json_the_text_is_printed_as_it_is(capsys):
    """Square brackets in names are no markup."""
    output.emit(argparse.Namespace(json=False), {}, lambda console: console.print("[bold]actor[/bold]"))

    assert capsys.readouterr().out == "[bold]actor[/bold]\n"


def test_json_text_takes_foreign_numbers_and_paths(tmp_path):
    """A numpy number becomes a number, a path its text."""
    import numpy as np

    document = {"x": np.float32("nan"), "n": np.int64(3), "p": tmp_path}

    assert json.loads(json_text.to_text(document)) == {"x": "nan", "n": 3, "p": str(tmp_path)}


def test_output_that_the_terminal_cannot_encode_is_escaped(monkeypatch):
    """Model output with any character reaches an ASCII terminal."""
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="ascii"))
    monkeypatch.setattr(cli, "build_parser", verb(lambda args: print("价值") or 0))

    assert cli.main(["x"]) == 0
    assert b"\\u4ef7" in raw.getvalue()
