# SPDX-License-Identifier: Apache-2.0
"""The model of about 0.1 B parameters: trained on the GPU, rounded to 31 values a row, and so small enough to carry.

Both machines must start from the same weights. The rounded weights are the model's weights on both of them: what is
packed is exact, not approximate.
"""

from __future__ import annotations

import argparse
import json
import lzma
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import torch
from safetensors.numpy import load_file, save_file
from transformers import AutoConfig, AutoModelForTokenClassification

from sentinel.demo.assets import Assets, AssetSettings, load, prepare

LARGE = AssetSettings(
    hidden_size=1024, layers=9, vocabulary=384, train_steps=240, batch=96, learning_rate=4e-4, train_prompts=96
)
"""86 million parameters."""
LEVELS = 15
ROUNDED = "rounded"
HEAD_SEED = 7


def make_large(folder: Path, device: str, settings: AssetSettings = LARGE) -> Assets:
    """Train the model on `device`, round its weights, and write it in `folder`."""
    made = load(folder, settings)
    if made is not None and (folder / ROUNDED).exists():
        return made
    assets = prepare(
        folder, settings, lambda done, of, loss: print(f"lesson {done} of {of}: {loss:.3f}", flush=True), device
    )
    weights = read(assets.model)
    write(assets.model, {name: rounded(*to_grid(value)) for name, value in weights.items()})
    (folder / ROUNDED).touch()
    return assets


def to_grid(value: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A tensor as whole numbers of at most 15 in size, and the scale of each row (float32)."""
    rows = value.reshape(value.shape[0], -1)
    scale = (np.abs(rows).max(1, keepdims=True) / LEVELS).astype(np.float32)
    scale[scale == 0] = 1
    # Eleven bits of mantissa, rounded up: products with whole numbers are exact, and so is finding the scale again.
    scale = ((scale.view(np.int32) + 0xFFF) & ~0xFFF).view(np.float32)
    return np.rint(rows / scale).astype(np.int8).reshape(value.shape), scale


def rounded(numbers: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """The tensor that `to_grid` stands for; the same bits on every machine: one product of two float32 numbers."""
    rows = numbers.reshape(numbers.shape[0], -1).astype(np.float32) * scale
    return rows.reshape(numbers.shape)


def read(model: Path) -> dict[str, np.ndarray]:
    """The weights of a model folder."""
    return load_file(model / "model.safetensors")


def write(model: Path, weights: dict[str, np.ndarray]) -> None:
    """Replace the weights of a model folder."""
    save_file(
        {name: np.ascontiguousarray(value) for name, value in weights.items()},
        model / "model.safetensors",
        {"format": "pt"},
    )


def pack(folder: Path, into: Path) -> None:
    """Write the assets in `folder` as one file for each tensor into the folder `into`, the other files beside them."""
    into.mkdir(parents=True, exist_ok=True)
    weights = read(folder / "model")

    def one(item: tuple[int, str]) -> tuple[str, list[int]]:
        number, name = item
        numbers, scale = to_grid(weights[name])
        packed = lzma.compress(scale.tobytes() + numbers.tobytes(), preset=1)
        (into / f"{number}.xz").write_bytes(packed)
        return name, list(weights[name].shape)

    with ThreadPoolExecutor() as pool:
        table = list(pool.map(one, enumerate(sorted(weights))))
    (into / "tensors.json").write_text(json.dumps(table), encoding="utf-8")
    rest = shutil.ignore_patterns("model.safetensors", "critic")
    shutil.copytree(folder, into / "rest", ignore=rest, dirs_exist_ok=True)


def unpack(packed: Path, folder: Path) -> None:
    """The inverse of `pack`: the same assets, bit for bit."""
    shutil.copytree(packed / "rest", folder, dirs_exist_ok=True)
    weights = {}
    for number, (name, shape) in enumerate(json.loads((packed / "tensors.json").read_text(encoding="utf-8"))):
        raw = lzma.decompress((packed / f"{number}.xz").read_bytes())
        cut = 4 * shape[0]
        scale = np.frombuffer(raw[:cut], np.float32).reshape(-1, 1)
        weights[name] = rounded(np.frombuffer(raw[cut:], np.int8).reshape(shape), scale)
    write(folder / "model", weights)


def make_critic(model: Path, folder: Path) -> Path:
    """A critic of the same weights with a value head from a seed, so that two machines start with the same one."""
    if folder.exists():
        return folder
    config = AutoConfig.from_pretrained(model, num_labels=1)
    critic = AutoModelForTokenClassification.from_pretrained(model, config=config, dtype=torch.float32)
    numbers = np.random.default_rng(HEAD_SEED).standard_normal((1, config.hidden_size)).astype(np.float32)
    with torch.no_grad():
        critic.score.weight.copy_(torch.from_numpy(numbers * np.float32(0.02)))
        if critic.score.bias is not None:
            critic.score.bias.zero_()
    critic.save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "special_tokens_map.json"):
        if (model / name).exists():
            shutil.copy(model / name, folder / name)
    return folder


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("pack", "unpack"))
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    args = parser.parse_args()
    {"pack": pack, "unpack": unpack}[args.what](args.source, args.target)


if __name__ == "__main__":
    main()
