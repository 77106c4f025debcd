"""Kill what a cluster stands on, again and again, under a load: primaries of PostgreSQL, masters of Redis.

    python -m tests.cluster.failover --kills 20                     both
    python -m tests.cluster.failover --kills 20 --only postgresql   or one of them
    python -m tests.cluster.failover --kills 6 --only patroni       by Patroni and etcd: tools/setup-system.sh long

Nothing that was answered may be lost or delivered to two at once, and half of the failovers may stop publishers for two
seconds at most. Only PostgreSQL's are answered for with a number: Redis is never needed to publish, and Patroni waits
before it promotes.
"""

from __future__ import annotations

import argparse
import signal
import statistics
import sys
import tempfile
from contextlib import closing
from pathlib import Path

from mqueue.testing import PostgresServer
from tests.cluster.failover.campaign import Result, run, staged
from tests.cluster.failover.engines import Primaries, Sentinels
from tests.cluster.failover.patroni import Patroni, missing

GAP_SECONDS_MAX = 2.0
KINDS = ("postgresql", "sentinel")
MANAGED = "patroni"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--kills", type=int, default=20, help="failovers of each kind")
    parser.add_argument("--nodes", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rate", type=int, default=200, help="messages a second")
    parser.add_argument("--only", choices=(*KINDS, MANAGED), help="one kind")
    parser.add_argument("--keep", type=Path, help="a directory for histories and what nodes say")
    given = parser.parse_args()
    if given.only == MANAGED and (why := missing()):
        parser.error(why)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that nothing is left behind
    results: list[Result] = []
    with tempfile.TemporaryDirectory() as place:
        for kind in [given.only] if given.only else KINDS:
            results.append(_one(kind, given, (given.keep or Path(place)) / kind))
            print(results[-1], flush=True)
    slow = [one for one in results if one.engine == Primaries.name and statistics.median(one.gaps) > GAP_SECONDS_MAX]
    return 1 if slow or any(one.wrong for one in results) else 0


def _one(kind: str, given: argparse.Namespace, place: Path) -> Result:
    place.mkdir(parents=True, exist_ok=True)
    if kind == "sentinel":
        with PostgresServer() as server, closing(Sentinels()) as watched:
            databases = [server.create("mqueue")]
            with staged(place, watched, databases, given.nodes) as stage:
                return run(stage, watched, given.kills, given.seed, given.rate)
    made = Patroni if kind == MANAGED else Primaries
    with closing(made()) as engine, staged(place, engine, [engine.url], given.nodes) as stage:
        return run(stage, engine, given.kills, given.seed, given.rate)


if __name__ == "__main__":
    sys.exit(main())
