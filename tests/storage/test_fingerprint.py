# SPDX-License-Identifier: Apache-2.0
"""What a baseline remembers of the run it was recorded from, without credentials."""

from sentinel.storage.fingerprint import facts_fingerprint, flatten


def test_facts_of_the_process_say_nothing_about_the_recipe():
    facts = {"verl": "0.9.1", "pid": 3, "host": "h", "rollout_data_dir": "/x", "stages": ("a",), "token": "secret"}

    assert facts_fingerprint(facts) == {"verl": "0.9.1", "stages": ["a"], "token": "<cut out>"}


def test_nested_values_become_dotted_keys():
    assert flatten({"a": {"b": 1, "c": {}}, "d": [1]}) == {"a.b": 1, "a.c": {}, "d": [1]}
