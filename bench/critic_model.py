# SPDX-License-Identifier: Apache-2.0
"""A critic whose value head is the same in every run; verl's own starts from another one each time."""

import importlib.util
from pathlib import Path

MODEL = Path(__file__).resolve().parents[1] / "deploy" / "gpu_baseline" / "model.py"


def critic_overrides(model: Path, folder: Path) -> list[str]:
    """Make it in `folder`, once, and return the overrides of a run that uses it."""
    spec = importlib.util.spec_from_file_location("gpu_baseline_model", MODEL)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return [f"critic.model.path={module.make_critic(model, folder)}"]
