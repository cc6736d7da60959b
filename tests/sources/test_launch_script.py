# SPDX-License-Identifier: Apache-2.0
"""Launch scripts as people write them: what they start is read, what only a shell knows is named."""

import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sentinel.sources.launch_mending import mended
from sentinel.sources.launch_script import NoLaunchError, parse_launch, parse_value

PPO = "python3 -m verl.trainer.main_ppo"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"{PPO} a=1 b.c=x", {"a": 1, "b.c": "x"}),
        (f"{PPO} \\\n  a=1 \\\n  b=2", {"a": 1, "b": 2}),
        (f"{PPO} \\\r\n  a=1 \\\r\n  b=2\r\n", {"a": 1, "b": 2}),
        (f"{PPO} +a=1 ++b=2 ~c", {"a": 1, "b": 2, "c": "<deleted>"}),
        (f"A=5\n{PPO} x=$A y=${{A}} z=${{A}}0", {"x": 5, "y": 5, "z": 50}),
        (f"{PPO} x=${{B:-7}} y=${{C-8}}", {"x": 7, "y": 8}),
        (f"ARGS=(a=1\n  # remark\n  'b=[1,2]'\n)\nARGS+=(c=3)\n{PPO} \"${{ARGS[@]}}\"", {"a": 1, "b": [1, 2], "c": 3}),
        (f'ARGS="a=1 b=2"\nARGS+=" c=3"\n{PPO} $ARGS', {"a": 1, "b": 2, "c": 3}),
        (f'{PPO} a=\'x y\' b="it\'s" c=\\"q\\"', {"a": "x y", "b": "it's", "c": "q"}),
        (
            f"{PPO} 'a=[\"console\",\"wandb\"]' b='{{x: 1, y: 1e-6}}'",
            {"a": ["console", "wandb"], "b": {"x": 1, "y": 1e-06}},
        ),
        (f"{PPO} a=1 a=2", {"a": 2}),
        (f"{PPO} a=null b=True c=1e-6 d=-1 e=", {"a": None, "b": True, "c": 1e-6, "d": -1, "e": None}),
        (f"{PPO} a=1 2>&1 | tee log.txt", {"a": 1}),
        (f"{PPO} a=1 > log 2>&1 &", {"a": 1}),
        (f"set -x; cd /x && {PPO} a=1", {"a": 1}),
        (f"nohup {PPO} a=1", {"a": 1}),
        ("python3 verl/trainer/main_ppo.py a=1", {"a": 1}),
        ("python3 -m recipe.dapo.main_dapo a=1", {"a": 1}),
        (f"ray job submit --address=http://x:8265 -- {PPO} a=1", {"a": 1}),
        (f"# {PPO} old=1\n{PPO} a=1", {"a": 1}),
        (f"cat <<EOF > note\n{PPO} other=1\nEOF\n{PPO} a=1", {"a": 1}),
        (f"cat > run.sh <<'EOF'\n{PPO} a=1 \\\n b=2\nEOF\nbash run.sh", {"a": 1, "b": 2}),
        (f"ssh node bash <<-EOF\n\t{PPO} a=1\n\tEOF\n", {"a": 1}),
        (f"run() {{\n  {PPO} a=1\n}}\nrun", {"a": 1}),
        (f"for i in 1 2; do\n {PPO} a=1\ndone", {"a": 1}),
    ],
)
def test_overrides_are_read(text, expected):
    assert parse_launch(text).overrides == expected


@pytest.mark.parametrize(
    ("text", "unresolved"),
    [
        (f"{PPO} a=$A b=1", ("a",)),
        (f"{PPO} a=$(date +%s) b=`hostname` c=$1", ("a", "b", "c")),
        (f"{PPO} a=$((2 * 4))", ("a",)),
        (f"if [ $X = 1 ]; then\n  TP=4\nelse\n  TP=2\nfi\n{PPO} tp=$TP", ("tp",)),
        (f"TP=2\nif true; then TP=2; fi\n{PPO} tp=$TP", ()),
        (f"for LR in 1 2; do\n {PPO} lr=$LR\ndone", ("lr",)),
        (f"{PPO} a=$A a=3", ()),
        (f'{PPO} a="${{X/y/z}}"', ("a",)),
    ],
)
def test_what_only_a_shell_knows_is_named(text, unresolved):
    assert parse_launch(text).unresolved == unresolved


@pytest.mark.parametrize(
    "text",
    [
        f"export HCCL_DETERMINISTIC=true\n{PPO} a=1",
        f"HCCL_DETERMINISTIC=true {PPO} a=1",
        f"HCCL_DETERMINISTIC=true\nexport HCCL_DETERMINISTIC\n{PPO} a=1",
        f'export HCCL_DETERMINISTIC=false\nexport HCCL_DETERMINISTIC="true"\n{PPO} a=1',
        f"env HCCL_DETERMINISTIC=true {PPO} a=1",
        f"declare -x HCCL_DETERMINISTIC=true\n{PPO} a=1",
        f'ray job submit --runtime-env-json=\'{{"env_vars": {{"HCCL_DETERMINISTIC": "true"}}}}\' -- {PPO} a=1',
        f"{PPO} a=1 +ray_kwargs.ray_init.runtime_env.env_vars.HCCL_DETERMINISTIC=\"'true'\"",
    ],
)
def test_exported_variables_are_read(text):
    assert parse_launch(text).exports["HCCL_DETERMINISTIC"] == "true"


def test_a_variable_that_is_not_exported_or_is_unset_again_does_not_reach_the_run():
    assert "A" not in parse_launch(f"A=1\n{PPO} a=1").exports
    assert "A" not in parse_launch(f"export A=1\nunset A\n{PPO} a=1").exports
    assert "A" not in parse_launch(f"export A=$(hostname)\n{PPO} a=1").exports


def test_arguments_and_other_files_are_remarked():
    found = parse_launch(f'source env.sh\n{PPO} a=1 "$@"')

    assert found.notes == (
        "reads env.sh, which was not followed",
        "arguments that are given to the script are not known",
    )


def test_no_command_and_several_with_other_settings_are_refused():
    with pytest.raises(NoLaunchError, match="starts no verl"):
        parse_launch("echo python3 -m verl.trainer.main_ppo a=1")
    with pytest.raises(NoLaunchError, match="2 times"):
        parse_launch(f"{PPO} a=1\n{PPO} a=2")
    assert parse_launch(f"{PPO} a=1\n{PPO} a=1").overrides == {"a": 1}


def test_credentials_and_names_are_cut_out():
    found = parse_launch(f"{PPO} +trainer.wandb_api_key=0123456789 model.path=/home/alice/m")

    assert "0123456789" not in str(found.overrides)
    assert "alice" not in str(found.overrides)


WORD = st.text("abz09_./$'\"\\ #[]{}()=;&|<>\n-~`@*!:,", max_size=30)


@given(st.lists(WORD, max_size=8))
def test_no_text_breaks_the_reader(pieces):
    try:
        parse_launch(" ".join(pieces) + f"\n{PPO} a=1")
    except NoLaunchError:
        return


SAFE = st.text("abcXYZ019_./:,-", min_size=1, max_size=8)


@given(
    st.dictionaries(st.from_regex(r"[a-z]{1,4}(\.[a-z]{1,4})?", fullmatch=True), SAFE, min_size=1, max_size=4),
    st.sampled_from(["'{}'", '"{}"', "{}"]),
)
def test_the_words_are_those_that_bash_gives(values, quotes):
    words = [quotes.format(f"{key}={value}") for key, value in values.items()]
    line = f"P=1\n{PPO} \\\n  " + " \\\n  ".join(words)
    shown = subprocess.run(
        ["bash", "-c", line.replace("python3", "printf '%s\\n'")], capture_output=True, text=True, check=True
    ).stdout.split("\n")[2:-1]

    assert list(parse_launch(line).written) == shown


@pytest.mark.parametrize(
    ("text", "value"), [("1_000", "1_000"), ("01", 1), ("[1e-6,a]", [1e-6, "a"]), ("{a:1}", {"a": 1}), ("{[", "{[")]
)
def test_values_are_read_as_hydra_would(text, value):
    assert parse_value(text) == value


def test_a_mended_script_starts_what_was_asked_and_changes_nothing_else():
    script = f"#!/bin/bash\nexport A=1\n{PPO} \\\n    data.shuffle=True \\\n    actor.lr=1e-6 # rate\n"

    after = mended(script, ("data.shuffle=False", "++actor.list=[1,2]"), ("export HCCL_DETERMINISTIC=true",))

    found = parse_launch(after)
    assert found.overrides == {"data.shuffle": False, "actor.list": [1, 2], "actor.lr": 1e-6}
    assert found.exports == {"A": "1", "HCCL_DETERMINISTIC": "true"}
    assert subprocess.run(["bash", "-n"], input=after, text=True, check=False).returncode == 0
    assert [line for line in script.splitlines() if line not in after.splitlines()] == ["    data.shuffle=True \\"]


def test_a_script_of_one_line_or_of_an_array_is_mended_too():
    one = mended(f"{PPO} a=1\n", ("b=2",), ())
    array = mended(f'ARGS=(\n  a=1\n)\n{PPO} "${{ARGS[@]}}"\n', ("a=3", "b=2"), ())

    assert parse_launch(one).overrides == {"a": 1, "b": 2}
    assert parse_launch(array).overrides == {"a": 3, "b": 2}
