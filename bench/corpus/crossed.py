# SPDX-License-Identifier: Apache-2.0
"""The score of each group with limits that were measured without it: what a recipe meets that the limits have never seen.

Only the limits and the noise of the catalogue are measured again; constants of the code (pools, floors, factors) were chosen with all
groups in view, so this is between a score on the data that tuned the engine and one on a split that nobody looked at.
"""

from __future__ import annotations

import json
import sys
import tempfile
from importlib import resources
from pathlib import Path

from bench.corpus import limits
from sentinel.cli.evaluation import to_plain
from sentinel.cli.scoring import Job, Options, evaluated, jobs_of, judged
from sentinel.core.catalogue import Catalogue
from sentinel.daemon.metric_catalogue import load_catalogue
from sentinel.sinks.json_text import to_text
from sentinel.storage.corpus import read_corpus

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


def score(corpora: list[Path], *, recipes: bool, bare: bool, processes: int) -> dict[str, object]:
    """The document of `sentinel evaluate --details --json` over all groups of the corpora; `bare`: without twins, with one seed."""
    options = Options(twins=False, seeds=1) if bare else Options()
    groups = limits.measured(corpora, load_catalogue())
    everything = judged(jobs(corpora, groups, options, recipes=recipes), processes)
    split = f"each group with limits that were measured without its {'recipe' if recipes else 'group'}"
    document: dict[str, object] = json.loads(to_text(to_plain(evaluated(split, everything), details=True)))
    return document


def jobs(
    corpora: list[Path], groups: list[limits.Measured], options: Options, *, recipes: bool = False, wider: float = 1.0
) -> list[tuple[Job, Catalogue]]:
    """Parts of the corpora, each with the limits that the other groups show; `wider`: times these."""
    found = []
    for folder in corpora:
        for job in jobs_of(read_corpus(folder), options):
            (own,) = (group for group in groups if group.group == job[0])
            others = [group for group in groups if group is not own and not (recipes and group.recipe == own.recipe)]
            found.append((job, catalogue_of(others, wider)))
    return found


def catalogue_of(groups: list[limits.Measured], wider: float = 1.0) -> Catalogue:
    """The shipped catalogue with the limits that these groups show, times `wider`."""
    values = limits.fit(groups)
    for regime in ("replay", "free"):
        values[regime] = {
            pattern: [limits.rounded(wider * number) for number in numbers]
            for pattern, numbers in values[regime].items()
        }
    data = resources.files("sentinel").joinpath("data")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "metrics.toml"
        path.write_text(data.joinpath("metrics.toml").read_text(encoding="utf-8"), encoding="utf-8")
        limits.write(path, values)
        return Catalogue.from_mapping(tomllib.loads(path.read_text(encoding="utf-8")))
