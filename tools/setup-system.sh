#!/usr/bin/env bash
# Install the Debian packages that tests marked `system` need. Without them those tests skip and say why.
set -euo pipefail

packages=()

if [ "${#packages[@]}" -eq 0 ]; then
  echo "setup-system: nothing to install yet"
  exit 0
fi
if [ "$(id -u)" -ne 0 ]; then
  echo "setup-system: needs root to install: ${packages[*]}" >&2
  exit 1
fi
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
apt-get install -y -qq --no-install-recommends "${packages[@]}"
