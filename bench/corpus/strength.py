# SPDX-License-Identifier: Apache-2.0
"""How visible a planted fault is: a fixed definition that knows nothing of the engine.

Strength is the largest, over the stage's own metrics, of the median over the 10 steps from onset of
|x - median of clean runs| / (1.4826 MAD of the clean runs at that step, floored). Strong is above 10, medium 3 to 10,
subtle 1 to 3, invisible below 1. A value that is not finite counts as infinitely far out. Delay counts from the first step
whose own largest deviation is 1 or more.

The floor of the scale: 1e-4 of the median's size, 1e-6, and a quarter of the metric's typical spread within 5 steps, so that
a step at which few clean runs happen to agree does not make a fault strong. Where most clean runs agree exactly (a longest
response, a share that is mostly 0) the MAD is 0 although they do differ now and then: there the standard deviation over the
clean runs within 5 steps is the floor.
"""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase

import numpy as np

WINDOW = 10
LEAST_CLEAN_RUNS = 8

OWN_METRICS = {
    "data": ("prompt_length/*",),
    "config": ("actor/lr", "critic/lr", "actor/kl_coef", "actor/reward_kl_penalty_coeff"),
    "rollout": ("response_length/*", "training/rollout_*", "rollout_corr/*"),
    "compute_rm_score": ("critic/score/*", "critic/rewards/*"),
    "actor_compute_log_prob": ("actor/entropy", "training/rollout_*", "rollout_corr/*"),
    "ref_compute_log_prob": ("actor/kl_loss", "actor/reward_kl_penalty", "critic/rewards/*"),
    "compute_values": ("critic/values/*", "critic/vf_explained_var"),
    "advantage": ("critic/advantages/*", "critic/returns/*"),
    "critic_update": (
        "critic/vf_loss",
        "critic/vf_clipfrac",
        "critic/vpred_mean",
        "critic/grad_norm",
        "critic/values/*",
        "critic/vf_explained_var",
    ),
    "actor_update": (
        "actor/pg_loss",
        "actor/ppo_kl",
        "actor/pg_clipfrac*",
        "actor/grad_norm",
        "actor/entropy",
        "actor/kl_loss",
        "actor/reward_kl_penalty",
    ),
}


@dataclass(frozen=True)
class CleanBand:
    """Median and floored scale of the clean runs; [steps, metrics] each."""

    metrics: list[str]
    middle: np.ndarray
    scale: np.ndarray


def clean_band(metrics: list[str], clean: np.ndarray) -> CleanBand:
    """`clean` is [runs, steps, metrics] with NaN where a metric is absent."""
    if len(clean) < LEAST_CLEAN_RUNS:
        raise ValueError(f"{len(clean)} clean runs; the definition asks for {LEAST_CLEAN_RUNS}")
    middle = np.median(clean, axis=0)
    spread = 1.4826 * np.median(np.abs(clean - middle), axis=0)
    near = [slice(max(0, step - 5), step + 6) for step in range(len(middle))]
    around = np.array([np.median(spread[steps], axis=0) for steps in near])
    deviation = np.array([np.sqrt(np.mean((clean[:, steps] - middle[steps]) ** 2, axis=(0, 1))) for steps in near])
    floor = np.maximum(1e-4 * np.abs(middle), 1e-6)
    floor = np.maximum(floor, np.where(around > 0, 0.25 * around, deviation))
    return CleanBand(metrics, middle, np.maximum(spread, floor))


def strength(values: np.ndarray, band: CleanBand, stage: str, onset: int) -> tuple[float, int | None]:
    """Strength of a fault in a run [steps, metrics], and the first step (1-based) from onset on that shows it.

    The run may be shorter than the band: it ends some steps after its onset.
    """
    count = len(values)
    own = [
        column
        for column, metric in enumerate(band.metrics)
        if any(fnmatchcase(metric, pattern) for pattern in OWN_METRICS[stage])
        and np.isfinite(band.middle[:, column]).all()
    ]
    with np.errstate(invalid="ignore", over="ignore"):
        out = np.abs(values[:, own] - band.middle[:count, own]) / band.scale[:count, own]
    out = np.where(np.isfinite(out), out, np.inf)[onset - 1 :]
    shown = np.flatnonzero(out.max(axis=1) >= 1)
    return float(np.median(out[:WINDOW], axis=0).max()), (int(shown[0]) + onset if len(shown) else None)
