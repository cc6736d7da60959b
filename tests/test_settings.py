"""Settings, and the file that documents them."""

import contextlib
import dataclasses
import itertools
import os
import pathlib

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from sentinel.errors import SettingsError
from sentinel.settings import Settings, load, parse

REFERENCE = pathlib.Path(__file__).parents[1] / "deploy" / "sentinel.yaml"


def keys(value, prefix=""):
    """Every dotted key of a nested mapping or dataclass."""
    items = (
        value.items()
        if isinstance(value, dict)
        else ((f.name, getattr(value, f.name)) for f in dataclasses.fields(value))
    )
    for name, item in items:
        yield prefix + name
        if isinstance(item, dict) or dataclasses.is_dataclass(item):
            yield from keys(item, f"{prefix}{name}.")


def test_the_reference_file_documents_every_key_and_no_other():
    """deploy/sentinel.yaml and the code know the same keys."""
    documented = set(keys(yaml.safe_load(REFERENCE.read_text())))

    assert documented == set(keys(Settings()))


def test_the_reference_file_holds_the_defaults():
    """What it shows is what holds when it is left out."""
    assert load(REFERENCE) == Settings()


def test_every_key_of_the_reference_file_has_a_comment():
    """A key, or the group it begins, is explained above it."""
    lines = REFERENCE.read_text().split("\n")
    bare = [
        line
        for before, line in itertools.pairwise(lines)
        if ":" in line and not line.strip().startswith("#") and not line.endswith(":") and "#" not in before
    ]

    assert [line.split(":")[0].strip() for line in bare] == ["most_bytes", "most_seconds", "tls_key_file"]


def test_an_empty_file_is_all_defaults():
    """Nothing has to be set."""
    assert parse("") == Settings()
    assert parse("# only a comment\nengine:\n") == Settings()


def test_all_errors_are_said_at_once_in_one_line():
    """An unknown key names the nearest; a wrong type and a value out of range are said beside it."""
    text = "bseline: x\nhttp:\n  port: many\n  hots: a\nalerts: {min_severity: high}\nregime: 3\n"
    with pytest.raises(SettingsError) as raised:
        parse(text, "/etc/sentinel.yaml")

    message = str(raised.value)
    assert "\n" not in message
    for part in (
        "/etc/sentinel.yaml: ",
        "bseline is no setting, did you mean 'baseline'?",
        "http.port: expected a whole number, found 'many'",
        "http.hots is no setting, did you mean 'host'?",
        "alerts: min_severity is 'high'",
        "regime: expected text, found 3",
    ):
        assert part in message


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("a: [", "line 1"),
        ("- 1\n- 2\n", "expected keys and values, found list"),
        ("just words", "expected keys and values"),
        ("home: a\nhome: b\n", "line 2: 'home' is given twice"),
        ("http: 9477", "http: expected keys and values"),
        ("engine: {detectors: [nan]}", "'nan' is none of nonfinite"),
        ("engine: {detectors: nonfinite}", "expected a list"),
        ("engine: {capture: {steps: -1}}", "must not be negative"),
        ("engine: {past_steps: 1.5}", "expected a whole number"),
        ("trainer: {wait_seconds: 5}", "from 0 to 1"),
        ("trainer: {wait_seconds: .nan}", "must not be negative"),
        ("http: {insecure: 1}", "expected true or false"),
        ("home: ''", "home is empty"),
        ("regime: sometimes", "must be one of"),
        ("{? [1] : 2}", "settings"),
        ("!!python/object/apply:os.system ['true']", "line 1"),
    ],
)
def test_each_fault_is_one_line(text, part):
    """What, where, what to do."""
    with pytest.raises(SettingsError) as raised:
        parse(text)

    assert part in str(raised.value)
    assert "\n" not in str(raised.value)


def test_numbers_that_yaml_takes_for_text_are_numbers():
    """`1e-2` is text in YAML 1.1."""
    assert parse("trainer: {wait_seconds: 1e-2}").trainer.wait_seconds == 0.01


def test_relative_paths_are_relative_to_the_file(tmp_path):
    """The daemon runs somewhere else than the file lies."""
    file = tmp_path / "sentinel.yaml"
    file.write_text("baseline: gold.zip\nhome: state\ntrainer: {dump_root: dumps}\n")
    got = load(file)

    assert got.baseline == str(tmp_path / "gold.zip")
    assert got.home_folder == tmp_path / "state"
    assert got.trainer.dump_root == str(tmp_path / "dumps")


def test_the_home_of_the_process_that_uses_it_counts(monkeypatch):
    """`~` is another place in every process."""
    monkeypatch.setenv("HOME", "/somewhere")

    assert str(Settings().home_folder) == "/somewhere/.sentinel"


def test_a_missing_file_is_one_line(tmp_path):
    """Also one that is no text."""
    with pytest.raises(SettingsError, match="No such file"):
        load(tmp_path / "none.yaml")
    (tmp_path / "binary.yaml").write_bytes(os.urandom(10) + b"\xff\xfe")
    with pytest.raises(SettingsError, match=r"binary\.yaml"):
        load(tmp_path / "binary.yaml")


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=5), inner, max_size=2),
    max_leaves=4,
)


@settings(max_examples=80, deadline=None)
@given(st.dictionaries(st.sampled_from([*(f.name for f in dataclasses.fields(Settings)), "other"]), values))
def test_any_mapping_is_settings_or_one_line(mapping):
    """Nothing but a SettingsError comes of what people write."""
    with contextlib.suppress(SettingsError):
        Settings.from_mapping(mapping)
