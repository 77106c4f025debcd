#!/usr/bin/env bash
# Install the Debian packages that tests marked `system` need. Without them those tests skip and say why.
#   tools/setup-system.sh         for `make test`
#   tools/setup-system.sh long    and for `make long`, `make failover` and `make cluster-faults`
#   tools/setup-system.sh bench   what `make bench` measures beside us
set -euo pipefail

packages=(
  # tools/power_cut: a disk whose power can be cut (nbdkit and its Python plugin), made a file (nbdfuse), with file systems on it
  nbdkit nbdkit-plugin-python libnbd-bin fuse3 e2fsprogs xfsprogs
  # tests/integration/test_seed_lines.py: the lines that other queues print for their users, with the real thing
  curl
  # tests/cluster/test_pgbouncer.py: a pooler between nodes and a shard
  pgbouncer
  # tests/docs/test_deploy.py, tests/integration/test_prometheus.py: promtool, and a Prometheus that scrapes a server
  prometheus
  # tests/integration/test_cli_top.py: a terminal whose screen can be read
  tmux
  # tests/browser, tools/screenshots.py: the dashboard as a person sees it, and letters to show
  chromium fonts-inter fonts-dejavu-core
)
case "${1:-}" in
  long)
    # tests/cluster/failover/patroni.py: a shard that fails over by itself
    packages+=(patroni etcd-server)
    # tests/cluster/network/packets.py: a network that drops packets
    packages+=(nftables iproute2)
    ;;
  bench)
    # benchmarks/amqp.py: RabbitMQ, of which each run starts a node of its own
    packages=(rabbitmq-server)
    ;;
esac

if [ "$(id -u)" -ne 0 ]; then
  echo "setup-system: needs root to install: ${packages[*]}" >&2
  exit 1
fi
# What is installed is for tests, which start it themselves: no package may start a daemon, and take a port with it.
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
  printf '#!/bin/sh\nexit 101\n' > "$policy"
  chmod +x "$policy"
  trap 'rm -f "$policy"' EXIT
fi
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
apt-get install -y -qq --no-install-recommends "${packages[@]}"
