# SPDX-License-Identifier: Apache-2.0
"""What is tried in a process of its own: `python -m sentinel.doctor.trials NAME ANSWER_FILE`.

Each trial returns a plain document; whatever it raises becomes `{"error": ...}`.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.metadata
import json
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sentinel.doctor import device_trials
from sentinel.facts.npu import DEVICE, MODULE

MSPROBE_NAMES = (
    "msprobe.pytorch:PrecisionDebugger._instance",
    "msprobe.pytorch:seed_all",
    "msprobe.core.common.runtime:Runtime.is_running",
    "msprobe.core.common.log:logger.level",
    "msprobe.core.common.const:MsgConst.LogLevel.ERROR",
    "msprobe.pytorch.common.log:logger.level",
    "msprobe.pytorch.dump.module_dump.module_processor:BackwardHook",
    "msprobe.pytorch.dump.module_dump.module_processor:ModuleProcessor.reset_module_stats",
    "msprobe.pytorch.dump.api_dump.api_register:get_api_register",
    "msprobe.core.dump.hook_manager:BaseHookManager.hook_handle_dict",
    "msprobe.core.dump.hook_manager:BaseHookManager.reset_status",
)
"""What `sentinel.trainer.probe` uses of msprobe; most of it is private there."""

VERL_NAMES = (
    "verl.utils.tracking:Tracking.log",
    "verl.trainer.ppo.ray_trainer:RayPPOTrainer._start_profiling",
    "verl.trainer.ppo.ray_trainer:RayPPOTrainer._stop_profiling",
    "verl.trainer.ppo.v1.trainer_base:PPOTrainer._start_profiling",
    "verl.trainer.ppo.v1.trainer_base:PPOTrainer._stop_profiling",
    "verl.workers.engine_workers:TrainingWorker.infer_batch",
    "verl.workers.engine_workers:TrainingWorker.train_mini_batch",
)
"""What Sentinel hooks in verl: metrics, step boundaries of the V0 and V1 trainers, stages of the workers."""

_TOLERANCE = 1e-2
"""Of a matrix product on the device in float32, which NPUs may compute with fewer bits, against float64."""


def look_at_torch() -> dict[str, Any]:
    """Import torch, and with it every device backend that is installed."""
    torch = importlib.import_module("torch")
    answer: dict[str, Any] = {"version": str(torch.__version__), "cuda": bool(torch.cuda.is_available())}
    npu = sys.modules.get("torch_npu")
    if npu is not None:
        answer["torch_npu"] = str(getattr(npu, "__version__", ""))
        answer["npu"] = bool(torch.npu.is_available())
        answer["devices"] = int(torch.npu.device_count()) if answer["npu"] else 0
    return answer


def look_at_verl() -> dict[str, Any]:
    """Import verl as a run does, and look for what Sentinel hooks."""
    verl = importlib.import_module("verl")
    plugin = "sentinel.trainer.plugin" in sys.modules
    names = {name: _problem(name) for name in VERL_NAMES}
    transformers = sys.modules.get("transformers")
    return {
        "version": str(verl.__version__),
        "plugin": plugin,
        "names": names,
        "transformers": str(getattr(transformers, "__version__", "")),
    }


def look_at_dump() -> dict[str, Any]:
    """Look for what Sentinel uses of msprobe, then dump a small model on the CPU."""
    importlib.import_module("msprobe.pytorch")
    names = {name: _problem(name) for name in MSPROBE_NAMES}
    return {"names": names, "dump": _contained(lambda: dump_on("cpu"))}


def look_at_ray() -> dict[str, Any]:
    """Join the cluster at RAY_ADDRESS and ask one of its workers."""
    ray = importlib.import_module("ray")
    if "RAY_AUTH_MODE" not in os.environ and (Path.home() / ".ray" / "auth_token").is_file():
        os.environ["RAY_AUTH_MODE"] = "token"
    ray.init(address=os.environ["RAY_ADDRESS"], namespace="sentinel", logging_level="ERROR", log_to_driver=False)
    worker = ray.get(ray.remote(num_cpus=0)(_version_here).remote(), timeout=60)
    resources = {name: value for name, value in ray.cluster_resources().items() if name in ("CPU", "GPU", "NPU")}
    return {
        "nodes": sum(1 for node in ray.nodes() if node["Alive"]),
        "resources": ", ".join(f"{value:g} {name}" for name, value in sorted(resources.items())),
        "daemon": any(actor.get("name") == "watchdog" for actor in ray.util.list_named_actors(all_namespaces=True)),
        "worker": worker,
        "here": _version_here(),
    }


def _version_here() -> str:
    try:
        return importlib.metadata.version("verl-sentinel")
    except importlib.metadata.PackageNotFoundError:
        return ""


def look_at_npu() -> dict[str, Any]:
    """Try on the first NPU what cannot be tried without one."""
    torch = importlib.import_module("torch")
    if MODULE not in sys.modules:
        importlib.import_module(MODULE)
    if not torch.npu.is_available():
        raise RuntimeError("torch.npu.is_available() is False")
    return look_at_device(DEVICE)


def look_at_device(device: str) -> dict[str, Any]:
    """Compute, repeat and dump on `device`, and whatever else a watch relies on."""
    trials = {"compute": compute_on, "repeat": repeat_on, "dump": dump_on, **device_trials.TRIALS}
    return {"device": device} | {name: _contained(functools.partial(trial, device)) for name, trial in trials.items()}


def compute_on(device: str) -> dict[str, Any]:
    """A matrix product on the device against the same one on the CPU in float64."""
    torch = importlib.import_module("torch")
    torch.manual_seed(1)
    left, right = torch.randn(256, 512), torch.randn(512, 256)
    exact = left.double() @ right.double()
    there = (left.to(device) @ right.to(device)).cpu().double()
    error = float((there - exact).abs().max() / exact.abs().max())
    return {"ok": error < _TOLERANCE, "said": f"matrix product off by {error:.1e} of its largest value"}


def repeat_on(device: str) -> dict[str, Any]:
    """Two training steps from one seed must give the same bits."""
    first, second = _train_once(device, None), _train_once(device, None)
    same = first == second
    return {"ok": same, "said": f"two training steps of one seed {'are equal bit for bit' if same else 'differ'}"}


def dump_on(device: str) -> dict[str, Any]:
    """Dump one training step of a small model as a run would; it must train the same bits as without."""
    from sentinel.trainer.probe import Probe

    plain = _train_once(device, None)
    with tempfile.TemporaryDirectory(prefix="sentinel_dump_") as folder:

        def probe(model: Any) -> Any:
            return Probe(
                {"root": folder, "step": 1, "stages": ["actor_update"], "level": "L0", "min_free_bytes": 1}, [model]
            )

        dumped = _train_once(device, probe)
        files = sorted(Path(folder).rglob("dump.json"))
        entries = len(json.loads(files[0].read_text(encoding="utf-8"))["data"]) if files else 0
    if plain != dumped:
        return {"ok": False, "said": "the step under the dump trained other bits than without"}
    return {"ok": entries > 0, "said": f"{entries} entries dumped, training bit for bit as without"}


def _train_once(device: str, make_probe: Callable[[Any], Any] | None) -> list[float]:
    """Return loss and gradients of one step of a small model; under a probe where one is made."""
    torch = importlib.import_module("torch")
    torch.manual_seed(2)
    layers = [torch.nn.Linear(16, 32), torch.nn.GELU(), torch.nn.LayerNorm(32), torch.nn.Linear(32, 4)]
    model = torch.nn.Sequential(*layers).to(device)
    rows = torch.randn(8, 16).to(device)

    def step() -> Any:
        loss = model(rows).float().pow(2).mean()
        loss.backward()
        return loss

    if make_probe is None:
        loss = step()
    else:
        probe = make_probe(model)
        try:
            probe.open()
            loss = probe.around("actor_update", model, step)
        finally:
            closed = probe.close()
        if closed["broken"]:
            raise RuntimeError(closed["broken"])
    numbers = [float(loss)]
    for parameter in model.parameters():
        numbers += parameter.grad.float().cpu().flatten().tolist()
    return numbers


def _problem(name: str) -> str:
    """Return why `module:attribute.path` cannot be used; empty where it can."""
    module_name, _, path = name.partition(":")
    try:
        thing: Any = importlib.import_module(module_name)
        for part in path.split("."):
            thing = getattr(thing, part)
    except Exception as error:
        return described(error)
    return ""


def _contained(trial: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    try:
        return trial()
    except Exception as error:
        return {"ok": False, "said": described(error)}


def described(error: BaseException) -> str:
    """Return an error and what caused it as one line."""
    parts: list[str] = []
    current: BaseException | None = error
    while current is not None and len(parts) < 4:
        parts.append(
            f"{type(current).__name__}: {' '.join(str(current).partition('Traceback (most')[0].split())[:300]}"
        )
        current = current.__cause__ or current.__context__
    return " <- ".join(parts)


TRIALS: dict[str, Callable[[], dict[str, Any]]] = {
    "torch": look_at_torch,
    "verl": look_at_verl,
    "dump": look_at_dump,
    "npu": look_at_npu,
    "ray": look_at_ray,
    "cpu": lambda: look_at_device("cpu"),
}


def main(name: str, answer: str) -> int:
    """Run one trial and write its answer at once, whole."""
    found: dict[str, Any] = {}
    try:
        found = TRIALS[name]()
    except BaseException as error:
        found = {"error": described(error)}
    beside = f"{answer}.part"
    with contextlib.suppress(OSError):
        Path(beside).write_text(json.dumps(found), encoding="utf-8")
        os.replace(beside, answer)
    return 0


if __name__ == "__main__":
    code = main(*sys.argv[1:3])
    sys.stdout.flush()
    # torch_npu and CANN may hang or crash in their exit handlers; the answer is written.
    os._exit(code)
