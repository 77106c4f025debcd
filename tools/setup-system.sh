#!/usr/bin/env bash
# Install the Debian packages that tests marked `system` need. Without them those tests skip and say why.
set -euo pipefail

packages=(
  # tools/power_cut: a disk whose power can be cut (nbdkit and its Python plugin), made a file (nbdfuse), with file systems on it
  nbdkit nbdkit-plugin-python libnbd-bin fuse3 e2fsprogs xfsprogs
  # tests/integration/test_seed_lines.py: the lines that other queues print for their users, with the real thing
  curl
)

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
