#!/usr/bin/env bash
# Installs Sentinel beside what an image already has, without changing any of it. Used by deploy/Dockerfile.
#   install.sh EXTRAS      from the folder that holds pyproject.toml; wheels/ is used instead of an index if it has any
set -euo pipefail
extras=${1:-}
python=$(command -v python3)
# What is there stays as it is: torch_npu and CANN do not survive another torch.
"$python" -m pip freeze --exclude-editable 2>/dev/null | grep -E '^[A-Za-z0-9._-]+==' > /tmp/present.txt || true
if grep -qi '^torch==' /tmp/present.txt; then
  constraint=/tmp/present.txt
else
  constraint=constraints.txt
fi
index=()
if compgen -G 'wheels/*.whl' >/dev/null; then
  index=(--no-index --find-links wheels)
fi
what=.
if compgen -G 'wheels/verl_sentinel-*.whl' >/dev/null; then
  what=$(echo wheels/verl_sentinel-*.whl)
fi
"$python" -m pip install --no-cache-dir "${index[@]}" --constraint "$constraint" "${what}${extras:+[$extras]}"
"$python" -m pip check || echo "pip check complains; that was so before where it names packages of the base image"
"$python" -m sentinel --version
