"""Break a cluster again and again, at random, one or two things at a time, under a load that never ends, and look
whether it kept its promises.

    python -m tests.cluster.chaos --minutes 10 --seed 0

Two PostgreSQL servers, Redis, three nodes, and wires between all of them. One load is content with the logs of nodes
and consumes for two groups, another publishes to the shards. The seed chooses what is broken and for how long; what
comes of it depends on the machine.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
from pathlib import Path

from tests.cluster.chaos.storm import Storm
from tests.cluster.faults.stage import Stage


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rate", type=int, default=200, help="messages a second of each load")
    parser.add_argument("--keep", type=Path, help="a directory for histories and what nodes say")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that nothing is left behind
    with (
        tempfile.TemporaryDirectory() as place,
        Stage(given.keep or Path(place), servers=2, redis=True, wired=True) as stage,
    ):
        storm = Storm(stage, given.seed, given.rate)
        storm.run(given.minutes * 60)
        print(storm.report())
    return 1 if storm.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
