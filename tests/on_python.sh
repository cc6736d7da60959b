#!/usr/bin/env bash
# The tests that need no torch, on another Python: tests/on_python.sh 3.10 VENV
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
version=$1 venv=$2
find_python() {
  for python in "python$version" "${PYENV_ROOT:-$HOME/.pyenv}"/versions/"$version".*/bin/python"$version"; do
    if "$python" -c '' 2>/dev/null; then echo "$python"; return; fi
  done
}
python=$(find_python)
if [ -z "$python" ]; then
  echo "left out: there is no Python $version here"
  [ -z "${CI:-}" ] && exit 0 || exit 1
fi
if [ ! "$venv/.installed" -nt pyproject.toml ]; then
  [ -x "$venv/bin/python" ] || "$python" -m venv "$venv"
  pins=constraints-$version.txt
  [ -f "$pins" ] || pins=constraints.txt
  "$venv/bin/pip" install --quiet --constraint "$pins" --editable '.[dev]'
  touch "$venv/.installed"
fi
# In CI what failed is tried again, alone, and fails for good when it fails twice; see the Makefile.
"$venv/bin/python" -m pytest -n 2 -m 'not live and not torch' || {
  [ -n "${CI:-}" ] && echo 'once more what failed:' && "$venv/bin/python" -m pytest --last-failed -m 'not live and not torch'
}
