#!/usr/bin/env bash
# A Ray cluster of one node with the daemon in it, in the foreground: ends when the daemon is gone, so that what runs it
# (a container, systemd) starts it again. The journal in `home` is taken up.
# SIGHUP: the settings are read again (`sentinel reload`); what is wrong with them is said, and the daemon goes on as it was.
#   serve.sh [SETTINGS]     default /etc/sentinel/sentinel.yaml, where it exists; RAY_PORT: the cluster's port
set -euo pipefail
settings=${1:-/etc/sentinel/sentinel.yaml}
port=${RAY_PORT:-6379}
export RAY_ADDRESS=127.0.0.1:$port
head=
finish() {
  trap - TERM INT EXIT
  sentinel down --timeout 20 || true
  if [ -n "$head" ]; then
    kill "$head" 2>/dev/null || true
    # Ray's head may not end by itself.
    for _ in $(seq 50); do kill -0 "$head" 2>/dev/null || return 0; sleep 0.2; done
    kill -9 "$head" 2>/dev/null || true
  fi
}
trap finish EXIT
trap 'exit 0' TERM INT
trap 'sentinel reload --config "$settings" --timeout 60 || true' HUP

ray start --head --block --port="$port" --disable-usage-stats --include-dashboard=false --num-cpus=1 &
head=$!
up=(sentinel up)
[ ! -f "$settings" ] || up+=(--config "$settings")
for attempt in $(seq 60); do
  "${up[@]}" && break
  kill -0 "$head" && [ "$attempt" -lt 60 ] || exit 1
  sleep 1
done
# A killed daemon is back within seconds; three answers missing in a row are the end.
missing=0
while kill -0 "$head" 2>/dev/null && [ "$missing" -lt 3 ]; do
  if sentinel status --timeout 30 >/dev/null; then missing=0; else missing=$((missing + 1)); fi
  sleep 15 &
  wait $! || true # a signal that is trapped ends the waiting, not the service
done
exit 1
