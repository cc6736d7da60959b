#!/usr/bin/env bash
# The Debian packages that the live tests use. As root; does nothing when all are there.
set -euo pipefail
packages=(prometheus prometheus-alertmanager chromium fonts-noto-cjk)
missing=()
for package in "${packages[@]}"; do
  dpkg-query --show --showformat='${Status}' "$package" 2>/dev/null | grep -q 'install ok installed' || missing+=("$package")
done
[ ${#missing[@]} -eq 0 ] && exit 0
echo "installing ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
apt-get update --quiet --quiet
# The services of these packages are not wanted, only their programs.
printf '#!/bin/sh\nexit 101\n' > /usr/sbin/policy-rc.d.sentinel
policy=/usr/sbin/policy-rc.d
[ -e "$policy" ] || { mv /usr/sbin/policy-rc.d.sentinel "$policy"; chmod +x "$policy"; ours=1; }
apt-get install --quiet --quiet --yes --no-install-recommends "${missing[@]}" >/dev/null
[ "${ours:-0}" = 1 ] && rm -f "$policy"
rm -f /usr/sbin/policy-rc.d.sentinel
