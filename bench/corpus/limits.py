# SPDX-License-Identifier: Apache-2.0
"""Measures `noise`, `replay` and `free` of the metric catalogue on clean runs, and writes them into it.

For each catalogue entry and window: the largest median deviation of each clean run (in the engine's own standard deviations), pooled
over the entry's metrics; from those maxima the median m, the 90 % quantile q and the 97 % quantile. The limit is m + c (q - m), at
least a tenth more than the 97 % quantile and at least LEAST: a fit to the bulk, which a few runs that part for good do not move.
Metrics that few tokens decide get no limit over short windows and a wider one over the others.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sentinel.core.catalogue import FREE_WINDOWS, REPLAY_WINDOWS, Catalogue
from sentinel.core.compare import free_look, learn, learn_bands, learn_pairing, replayed_look
from sentinel.core.compare.replayed import NOISE_STEPS
from sentinel.core.compare.windows import FREE_MEMORY, clamped, lower_median
from sentinel.core.frames import framed, index_of
from sentinel.records import Reference
from sentinel.storage.corpus import CorpusGroup, CorpusRun, read_corpus

WINDOWS = {"replayed": REPLAY_WINDOWS, "free": FREE_WINDOWS}
STRETCH = {"replayed": (9.0, 5.5, 4.5, 3.5), "free": (7.0, 5.5, 4.7, 4.4, 4.4)}
"""c of each window."""
LEAST = {"replayed": (8.0, 4.0, 3.0, 1.8), "free": (5.0, 3.0, 2.2, 1.6, 1.4)}
MARGIN = 1.1
FEW_TOKENS = re.compile(r"/(max|min)$|_(max|min)$|pearson|clipfrac|clip_ratio|chi2|ppl_ratio|(?<!log)_ppl$")
WIDER = {"replayed": (0.0, 0.0, 2.5, 1.4), "free": (0.0, 5.0, 2.0, 1.3, 1.2)}
"""Factors for metrics that few tokens decide; 0: no evidence."""
BURSTY = re.compile(r"ppo_kl$|grad_norm$|explained_var$|kl_loss")
WIDER_BURSTS = {"replayed": (1.5, 1.4, 1.1, 1.0), "free": (1.3, 1.2, 1.0, 1.0, 1.0)}
"""Factors for metrics that burst in healthy runs, too."""
GAP = re.compile(r"probs_diff|log_ppl_abs_diff|log_ppl_diff$|k3_kl|rollout_corr/kl$")
WIDER_GAP = (1.0, 1.1, 1.25, 1.25)
"""Factors under replay for the gap to the rollout engine: to recorded log-probs, as verl's, it grows as weights part, and few groups show it."""
EARLY, LATE = slice(0, 3), slice(50, 80)
"""Steps over which noise is measured, about `NOISE_STEPS`."""
assert NOISE_STEPS == (2.0, 65.0)
ALONE = 4.0
"""Times the next group's noise from which a group's is its own alone."""
DIGITS = 3


def deviations(group: CorpusGroup, runs: list[CorpusRun], catalogue: Catalogue) -> Iterator[np.ndarray]:
    """|deviation| of each run in standard deviations, shape (series, steps); 0 where it is no evidence."""
    baseline = learn(group.reference, catalogue)
    assert baseline is not None
    index = baseline.index
    pairing = learn_pairing(baseline, 0) if group.regime == "replayed" else None
    bands = learn_bands(baseline) if group.regime == "free" else None
    for run in runs:
        columns = []
        for reading in run.readings:
            frame = framed(reading.step, reading.metrics, index, catalogue)
            look = replayed_look(frame, (), baseline, pairing) if pairing else free_look(frame, (), baseline, bands)
            judged = index.paired if pairing else np.where(look.standard > 0, index.up, index.down)
            standard = np.abs(np.nan_to_num(look.standard[: len(index)], nan=0.0, posinf=1e300))
            columns.append(np.where(judged[: len(index)], standard, 0.0))
        yield np.array(columns).T


def maxima(course: np.ndarray, windows: tuple[int, ...]) -> np.ndarray:
    """Largest lower median over each window, shape (windows, series)."""
    padded = np.concatenate([np.zeros((len(course), FREE_MEMORY)), course], axis=1)
    steps = range(FREE_MEMORY + 1, padded.shape[1] + 1)
    return np.array([np.max([lower_median(padded[:, :end], window) for end in steps], axis=0) for window in windows])


def on_cpu(folder: Path) -> set[str]:
    """Runs that are not kept for the test split."""
    manifest = json.loads((folder / "corpus.json").read_text(encoding="utf-8"))
    return {run["id"] for run in manifest["runs"] if run["kernel"]["device"] == "cpu"}


Maxima = dict[str, list[np.ndarray]]
"""Catalogue pattern -> largest medians of each clean run and metric, each of shape (windows,)."""


@dataclass(frozen=True)
class Measured:
    """One group's clean runs and reference."""

    group: str
    regime: str
    recipe: str
    maxima: Maxima
    noise: dict[str, list[tuple[float, float]]]
    """Catalogue pattern -> noise of each metric, early and late; replayed groups only."""


def measured(folders: list[Path], catalogue: Catalogue) -> list[Measured]:
    """What the clean runs of each group do; runs that are kept for the test split are left out."""
    found = []
    for folder in folders:
        kept = on_cpu(folder)
        for group in read_corpus(folder).groups:
            clean = [run for run in group.judged if run.fault is None and run.id in kept]
            maxima_of: Maxima = defaultdict(list)
            index = learn(group.reference, catalogue).index
            for course in deviations(group, clean, catalogue):
                table = maxima(course, WINDOWS[group.regime])
                for row, entry in enumerate(index.entries):
                    maxima_of[entry.pattern].append(table[:, row])
            noise: dict[str, list[tuple[float, float]]] = defaultdict(list)
            if group.regime == "replayed":
                for pattern, pair in of_group(group.reference, catalogue):
                    noise[pattern].append(pair)
            recipe = group.id.removeprefix(f"{group.regime}-").rpartition("-")[0]
            found.append(Measured(group.id, group.regime, recipe, maxima_of, noise))
    return found


def limits(maxima_of_runs: list[np.ndarray], regime: str, pattern: str) -> list[float] | None:
    """Limits over the windows; None where no run ever deviates."""
    table = np.array(maxima_of_runs)
    if not table.any():
        return None
    middle, high, top = np.quantile(table, [0.5, 0.9, 0.97], axis=0)
    fitted = np.maximum(middle + np.array(STRETCH[regime]) * (high - middle), MARGIN * top)
    fitted = np.maximum(fitted, LEAST[regime])
    if BURSTY.search(pattern):
        fitted = fitted * np.array(WIDER_BURSTS[regime])
    if regime == "replayed" and GAP.search(pattern):
        fitted = fitted * np.array(WIDER_GAP)
    if FEW_TOKENS.search(pattern):
        fitted = fitted * np.array(WIDER[regime])
    return [rounded(value) for value in fitted]


def of_group(reference: Reference, catalogue: Catalogue) -> Iterator[tuple[str, tuple[float, float]]]:
    baseline = learn(reference, catalogue)
    assert baseline is not None
    index = index_of(baseline.index.keys, catalogue)
    members = np.concatenate([baseline.seeds[:1], baseline.twins])
    log = index.log & np.all((members >= 0) | ~np.isfinite(members), axis=(0, 1))
    power = 2.0 * np.var(clamped(members, index, log), axis=0, ddof=1)
    for row, entry in enumerate(index.entries):
        if index.paired[row] and np.isfinite(power[:, row]).all():
            yield entry.pattern, tuple(float(np.sqrt(power[steps, row].mean())) for steps in (EARLY, LATE))


def rounded(value: float) -> float:
    return float(f"{float(value):.{DIGITS}g}")


def write(catalogue_file: Path, values: dict[str, dict[str, list[float]]]) -> None:
    """Put the lines into the catalogue's entries; `values` is field -> pattern -> numbers. Alternatives of an entry share the largest."""
    blocks = catalogue_file.read_text(encoding="utf-8").split("[[metric]]")
    written = [blocks[0]]
    for block in blocks[1:]:
        patterns = [
            text
            for quoted in re.findall(r"match = \[(.*?)\]", block, re.DOTALL)
            for text in re.findall(r'"(.*?)"', quoted)
        ]
        names = {one for pattern in patterns for one in alternatives(pattern)}
        for name, table in values.items():
            block = re.sub(rf"^{name} = \[.*\]\n", "", block, flags=re.MULTILINE)
            found = [table[one] for one in names if one in table]
            if found:
                numbers = ", ".join(f"{max(column):g}" for column in zip(*found, strict=True))
                block = re.sub(r"^text = ", f"{name} = [{numbers}]\ntext = ", block, count=1, flags=re.MULTILINE)
        written.append(block)
    catalogue_file.write_text("[[metric]]".join(written), encoding="utf-8")


def alternatives(pattern: str) -> list[str]:
    found = re.search(r"\{([^{}]*)\}", pattern)
    if found is None:
        return [pattern]
    head, tail = pattern[: found.start()], pattern[found.end() :]
    return [whole for choice in found[1].split(",") for whole in alternatives(head + choice + tail)]


def loudest(table: np.ndarray) -> np.ndarray:
    """Largest value of each column below a gap of `ALONE`: recipes that part for good are no measure for others."""
    ordered = np.sort(table, axis=0)
    out = ordered[-1]
    for first, second in zip(ordered[:0:-1], ordered[-2::-1], strict=True):
        upper = len(ordered) // 2  # at most half of the groups are set apart
        out = np.where((out == first) & (first > ALONE * second) & (second >= ordered[upper]), second, out)
    return out


def fit(groups: list[Measured]) -> dict[str, dict[str, list[float]]]:
    """Field -> pattern -> numbers: limits of both regimes, and the noise of the loudest group."""
    out: dict[str, dict[str, list[float]]] = {"noise": {}, "replay": {}, "free": {}}
    for regime, field in (("replayed", "replay"), ("free", "free")):
        pooled: Maxima = defaultdict(list)
        for group in groups:
            if group.regime == regime:
                for pattern, runs in group.maxima.items():
                    pooled[pattern] += runs
        fitted = {pattern: limits(runs, regime, pattern) for pattern, runs in pooled.items()}
        out[field] = {pattern: numbers for pattern, numbers in fitted.items() if numbers is not None}
    noise: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for group in groups:
        for pattern, pairs in group.noise.items():
            noise[pattern] += pairs
    tables = {pattern: loudest(np.array(pairs)) for pattern, pairs in noise.items()}
    out["noise"] = {pattern: [rounded(value) for value in table] for pattern, table in tables.items() if table.any()}
    return out
