#!/usr/bin/env bash
# All wheels for installing Sentinel where there is no internet; run it where there is, with the same Python version and
# processor as there.
#   deploy/wheel_bundle.sh OUT [EXTRAS]       e.g. deploy/wheel_bundle.sh wheels probe
# There:
#   python -m pip install --no-index --find-links OUT 'verl-sentinel[EXTRAS]'
# Beside a torch_npu leave EXTRAS out: torch and msprobe are there already.
set -euo pipefail
[ $# -ge 1 ] || { sed -n '2,7p' "$0" >&2; exit 2; }
out=$(mkdir -p "$1" && cd "$1" && pwd)
extras=${2:-}
cd "$(dirname "${BASH_SOURCE[0]}")/.."
python=${PYTHON:-python3}
"$python" -m pip wheel --quiet --no-deps --wheel-dir "$out" .
wheel=$(ls -t "$out"/verl_sentinel-*.whl | head -n 1)
"$python" -m pip download --quiet --only-binary :all: --constraint constraints.txt --dest "$out" "${wheel}${extras:+[$extras]}"
(cd "$out" && sha256sum -- *.whl > SHA256SUMS)
echo "$(ls "$out"/*.whl | wc -l) wheels, $(du -sh "$out" | cut -f1), in $out"
