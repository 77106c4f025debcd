"""Move virtual shards from server to server under a load, grow a cluster while messages flow, and look what came of it.

    python -m tests.cluster.moves --seeds 3                     everything
    python -m tests.cluster.moves --seeds 3 --only grow         what has this in its name

Histories are checked as those of faults are (`python -m tests.cluster.faults`).
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
from pathlib import Path

from mqueue.testing import PostgresServer
from tests.cluster.faults.run import run
from tests.cluster.faults.stage import Stage
from tests.cluster.moves.going import GOING
from tests.cluster.moves.growing import grow

MESSAGES = 3_000


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, default=3, help="runs of each")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--only", default="", help="those whose name has these words")
    parser.add_argument("--messages", type=int, default=MESSAGES, help="of each run, at least")
    parser.add_argument("--keep", type=Path, help="a directory for histories and what nodes say")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that nothing is left behind
    seeds = range(given.first, given.first + given.seeds)
    bad = runs = 0
    with tempfile.TemporaryDirectory() as temporary:
        place = given.keep or Path(temporary)
        chosen = [fault for fault in GOING if given.only in fault.name]
        for redis in sorted({fault.redis for fault in chosen}):
            with Stage(place, servers=2, nodes=2, redis=redis) as stage:
                for fault in [fault for fault in chosen if fault.redis == redis]:
                    for seed in seeds:
                        outcome = run(stage, fault, seed, given.messages, runs)
                        print(outcome, flush=True)
                        runs, bad = runs + 1, bad + bool(outcome.wrong)
                        stage.restore()
        for seed in seeds if given.only in "grow" else ():
            servers = [PostgresServer() for _ in range(3)]
            try:
                growth = grow(place, [server.create("mqueue") for server in servers], seed)
            finally:
                for server in servers:
                    server.close()
            print(f"grow, seed {seed}: {growth}", flush=True)
            runs, bad = runs + 1, bad + bool(growth.wrong)
    print(f"{runs} runs: {bad} not as they should be")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
