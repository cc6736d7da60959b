# SPDX-License-Identifier: Apache-2.0
"""The rollout engine's dump configuration: written once, switched, and refused in one line where it cannot be."""

import json

import pytest

from sentinel.cli import main


def test_the_file_is_written_with_dumping_off_and_the_overrides_name_it(tmp_path, capsys):
    file = tmp_path / "vllm.json"

    assert main(["captures", "rollout", str(file), "--level", "mix", "--json"]) == 0

    told = json.loads(capsys.readouterr().out)
    config = json.loads(file.read_text())
    assert (config["dump_enable"], config["level"], config["rank"], config["step"]) == (False, "mix", [], [])
    assert "actor_rollout_ref.rollout.enforce_eager=True" in told["overrides"]
    assert any(override.endswith(f"additional_config.dump_config_path={file}") for override in told["overrides"])


def test_it_is_switched_on_narrowed_and_off_again(tmp_path, capsys):
    file = tmp_path / "vllm.json"
    main(["captures", "rollout", str(file)])
    own = json.loads(file.read_text())

    assert main(["captures", "rollout", str(file), "--switch", "on", "--module", "model.layers.0"]) == 0
    on = json.loads(file.read_text())
    assert main(["captures", "rollout", str(file), "--switch", "off"]) == 0

    assert (on["dump_enable"], on["statistics"]["list"]) == (True, [".model.layers.0."])
    assert json.loads(file.read_text()) == own


@pytest.mark.parametrize("switch", [[], ["--switch", "on"]])
def test_a_file_that_is_in_the_way_or_not_there_is_one_line_and_exit_2(tmp_path, capsys, switch):
    file = tmp_path / "vllm.json"
    if not switch:
        file.write_text("{}")

    assert main(["captures", "rollout", str(file), *switch]) == 2

    assert capsys.readouterr().err.strip().count("\n") == 0
