#!/usr/bin/env bash
# A verl job that Sentinel watches, submitted to a Ray cluster whose nodes have Sentinel installed.
#   RAY_API_SERVER_ADDRESS=http://HEAD:8265 deploy/ray/submit_job.sh [hydra overrides of verl]
# With Ray's token authentication: RAY_AUTH_MODE=token, and the cluster's token in ~/.ray/auth_token or RAY_AUTH_TOKEN.
# The first watched run starts the daemon; `sentinel up --config FILE` beforehand gives it settings of its own.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
exec ray job submit --no-wait --runtime-env "$here/runtime_env.yaml" -- \
  python3 -m verl.trainer.main_ppo trainer.device=npu "$@"
