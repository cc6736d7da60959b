# SPDX-License-Identifier: Apache-2.0
"""Sentinel's verbs are called as commands, and their own words are quoted when they fail."""

import os

import pytest

from sentinel.demo import verbs

ENVIRONMENT = {"PATH": os.environ["PATH"], "PYTHONPATH": os.getcwd()}


def test_a_verb_that_works_returns_what_it_printed():
    assert verbs.call(["--version"], ENVIRONMENT).startswith("sentinel ")


def test_a_verb_that_fails_is_quoted():
    with pytest.raises(verbs.VerbError) as failure:
        verbs.call(["no-such-verb"], ENVIRONMENT)

    assert "`sentinel no-such-verb` ended with code 2" in str(failure.value)
    assert "no-such-verb" in str(failure.value).partition("code 2")[2]


def test_what_is_no_json_is_an_error(monkeypatch):
    monkeypatch.setattr(verbs, "ENTRY", "print('hello')")

    with pytest.raises(verbs.VerbError, match="no JSON"):
        verbs.ask(["status"], ENVIRONMENT)
