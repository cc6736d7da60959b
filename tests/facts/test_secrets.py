# SPDX-License-Identifier: Apache-2.0
"""Credentials and names do not leave the machine; what text is made of does."""

import pytest

from sentinel.facts.secrets import CUT_OUT, clean_plain, clean_script, clean_text, clean_value, is_secret_name

PLANTED = (
    "hf_" + "a" * 30,
    "sk-" + "b" * 30,
    "ghp_" + "c" * 30,
    "github_pat_" + "d" * 30,
    "glpat-" + "e" * 20,
    "xoxb-" + "1" * 12,
    "AKIA" + "F" * 16,
    "LTAI" + "5" * 20,
    "eyJ" + "g" * 20 + "." + "h" * 20 + "." + "i" * 10,
)


@pytest.mark.parametrize("secret", PLANTED)
def test_credentials_of_known_shape_are_cut_out_wherever_they_stand(secret):
    for text in (secret, f"--header={secret}", f"https://h/x?a=1&key={secret}", f"run {secret} now"):
        assert secret not in clean_text(text)
    assert secret not in str(clean_plain({"note": [f"x {secret}"], "deep": {"a": {"b": secret}}}))


@pytest.mark.parametrize(
    ("text", "planted"),
    [
        ("https://user:pa55@proxy:3128/x", "pa55"),
        ("Authorization: Bearer abcdefgh12345678", "abcdefgh12345678"),
        ("x?token=abcdef&y=1", "abcdef"),
        ("-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----", "MIIE"),
        ("/home/alice/models", "alice"),
        ("a,/home/alice", "alice"),
        ("/data/users/bob/x:/Users/carol/y", "bob"),
        ("/data/users/bob/x:/Users/carol/y", "carol"),
    ],
)
def test_credentials_and_names_inside_text_are_cut_out(text, planted):
    assert planted not in clean_text(text)


@pytest.mark.parametrize(
    "name", ["wandb_api_key", "HF_TOKEN", "db.password", "secret", "AWS_SECRET_ACCESS_KEY", "x.ak", "credentials"]
)
def test_settings_of_these_names_are_credentials(name):
    assert is_secret_name(name)
    assert clean_value(name, "abc") == CUT_OUT
    assert clean_value(name, "") == ""


@pytest.mark.parametrize(
    "name",
    [
        "eos_token",
        "pad_token",
        "max_tokens",
        "monkey",
        "tokenizer",
        "additional_special_tokens",
        "data.prompt_key",
        "reward_fn_key",
        "sort_key",
    ],
)
def test_settings_of_these_names_are_none(name):
    assert clean_value(name, "abc") == "abc"


@pytest.mark.parametrize(
    "text", ["a" * 40, "0" * 64, "Qwen/Qwen2.5-0.5B", "sk-1", "disk-speed-test-of-the-day", "/root/x", "1e-06"]
)
def test_hashes_names_and_numbers_stay(text):
    assert clean_text(text) == text


@pytest.mark.parametrize(
    "line",
    [
        "export WANDB_API_KEY={}",
        "WANDB_API_KEY='{}' HF_HOME=/x python3 -m verl",
        'export  MY_PASSWORD="{}"; run',
        "  ++trainer.wandb_token={} \\",
        "+env.db.password = {}",
        "curl --api-key {} --retry 3",
        "curl --token={} http://x",
        '--runtime-env-json=\'{{"env_vars": {{"SWANLAB_API_KEY": "{}"}}}}\'',
        "a=1 B_SECRET={}",
    ],
)
def test_a_script_is_shown_without_its_credentials(line):
    written = line.format("s3cr3t-v4lue")

    for quoted in ("'{}'", '"{}"', "{}"):
        line = line.replace(quoted, "{}")
    assert clean_script(written) == line.format(CUT_OUT)


@pytest.mark.parametrize(
    "line",
    [
        "export WANDB_API_KEY=$KEY",
        'export WANDB_API_KEY="$KEY" A=b',
        "data.max_prompt_length=512 actor.optim.lr=1e-6 tokenizer=/home/me/x",
        "# the token comes from the vault",
        "python3 -m verl.trainer.main_ppo --config-name x",
        "actor_rollout_ref.model.override_config={eos_token_id:2}",
    ],
)
def test_the_rest_of_a_script_stays_as_it_is(line):
    assert clean_script(line) == line
