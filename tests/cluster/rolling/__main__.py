"""Restart the nodes of a cluster one after the other, under a load, and look whether anybody noticed.

    python -m tests.cluster.rolling --rounds 10

Clients are as users have them: they know all nodes, and try again as long as is usual. No call may fail, nothing may be
lost, doubled or held by two. A round restarts every node once.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
from pathlib import Path

from tests.cluster.faults.stage import Stage
from tests.cluster.rolling.run import run


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3, help="how often every node is restarted")
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--shards", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--redis", action="store_true", help="with Redis, and logs of the nodes' own")
    parser.add_argument("--wal", action="store_true", help="with Redis, and publishers answered by these logs")
    parser.add_argument("--keep", type=Path, help="a directory for the history and what nodes say")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that nothing is left behind
    with tempfile.TemporaryDirectory() as place:
        directory = given.keep or Path(place)
        with Stage(directory, servers=given.shards, nodes=given.nodes, redis=given.redis or given.wal) as stage:
            outcome = run(stage, given.rounds, given.seed, "wal" if given.wal else None, tell=print)
    print(outcome)
    return 1 if outcome.wrong or outcome.failed else 0


if __name__ == "__main__":
    sys.exit(main())
