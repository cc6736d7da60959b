# SPDX-License-Identifier: Apache-2.0
"""`python -m bench.corpus build --out DIR [--split NAME]`, `limits CORPUS...`, `crossed`, `variants` and `page SCORE --out DOCS`."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from bench.corpus import crossed, limits, page, plan, variants
from bench.corpus.build import build
from sentinel.daemon.metric_catalogue import load_catalogue


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.corpus", description=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True)
    verb = verbs.add_parser("build", help="make the runs of a split that are missing, and write the corpus")
    verb.add_argument("--out", type=Path, required=True, help="directory; what is there already is kept")
    verb.add_argument("--split", choices=sorted(plan.SPLITS), default="tuning")
    verb.add_argument("--processes", type=int, default=1)
    verb.add_argument("--gpu", action="store_true", help="two clean runs of each group on the first CUDA device")
    verb.add_argument("--seconds", type=float, default=float("inf"), help="start no run after this long")
    verb.add_argument("--group", action="append", default=[], help="only this group; may be repeated")
    verb = verbs.add_parser(
        "limits", help="measure the limits of the metric catalogue on clean runs, and write them into it"
    )
    verb.add_argument("corpora", type=Path, nargs="+", help="splits that are not for the test")
    verb.add_argument("--catalogue", type=Path, default=Path("sentinel/data/metrics.toml"))
    verb = verbs.add_parser("crossed", help="score each group with limits that were measured without it")
    verb.add_argument("corpora", type=Path, nargs="+")
    verb.add_argument("--bare", action="store_true", help="without twins, and with one seed")
    verb.add_argument("--recipes", action="store_true", help="leave out all groups of the recipe, not only the group")
    verb.add_argument(
        "--out", type=Path, required=True, help="the score, as `sentinel evaluate --details --json` writes it"
    )
    verb.add_argument("--processes", type=int, default=2)
    verb = verbs.add_parser("variants", help="score the engine without one of its parts, or with wider limits")
    verb.add_argument("corpora", type=Path, nargs="+")
    verb.add_argument("--out", type=Path, required=True, help="variant -> rows, as JSON")
    verb.add_argument("--processes", type=int, default=2)
    verb = verbs.add_parser("page", help="the page of the docs, from `sentinel evaluate CORPUS --details --json`")
    verb.add_argument("score", type=Path)
    verb.add_argument("--bare", type=Path, help="a score made without twins and with one seed, for a second table")
    verb.add_argument("--out", type=Path, required=True, help="the folder of the docs")
    args = parser.parse_args()
    if args.verb == "page":
        page.write(args.score, args.out, args.bare, page.UNSEEN, page.VARIANTS)
        return 0
    if args.verb == "limits":
        limits.write(args.catalogue, limits.fit(limits.measured(args.corpora, load_catalogue())))
        return 0
    if args.verb == "variants":
        args.out.write_text(json.dumps(variants.score(args.corpora, args.processes)) + "\n", encoding="utf-8")
        return 0
    if args.verb == "crossed":
        document = crossed.score(args.corpora, recipes=args.recipes, bare=args.bare, processes=args.processes)
        args.out.write_text(json.dumps(document) + "\n", encoding="utf-8")
        return 0
    complete = build(
        args.split, args.out, processes=args.processes, gpu=args.gpu, seconds=args.seconds, groups=args.group
    )
    print("complete" if complete else "incomplete: run it again to go on", file=sys.stderr)
    return 0 if complete else 1


if __name__ == "__main__":
    raise SystemExit(main())
