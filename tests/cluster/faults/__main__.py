"""Break a cluster in every way it knows, under a load, and look whether it kept its promises.

    python -m tests.cluster.faults --seeds 3                    all of them
    python -m tests.cluster.faults --seeds 3 --only "kill"      those whose name has these words
    python -m tests.cluster.faults --seeds 3 --only "netns"     those that drop packets: as root, with nft

A run is a fault and a seed: real nodes, real PostgreSQL servers, publishers and consumers at all nodes, something that
breaks in the middle. Everything that was asked and answered is written down, and the history is checked. The seed
chooses what is done; when it happens depends on the machine.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
from itertools import groupby
from pathlib import Path

from tests.cluster.faults.breaking import FAULTS, Fault
from tests.cluster.faults.run import Outcome, run
from tests.cluster.faults.stage import Stage
from tests.cluster.network.packets import enter, missing

MESSAGES = 6_000


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, default=3, help="runs of each fault")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--only", default="", help="faults whose name has these words")
    parser.add_argument("--messages", type=int, default=MESSAGES, help="of each run, at least")
    parser.add_argument("--keep", type=Path, help="a directory for histories and what nodes say")
    given = parser.parse_args()
    chosen = [fault for fault in FAULTS if given.only in fault.name]
    if any(fault.packets for fault in chosen):
        chosen = _in_a_network_of_our_own(chosen)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that nothing is left behind
    outcomes: list[Outcome] = []
    with tempfile.TemporaryDirectory() as place:
        directory = given.keep or Path(place)
        for needs, faults in groupby(sorted(chosen, key=_needs), _needs):
            with Stage(directory, redis=needs[0], wired=needs[1], packets=needs[2]) as stage:
                for fault in faults:
                    for seed in range(given.first, given.first + given.seeds):
                        outcomes.append(run(stage, fault, seed, given.messages, len(outcomes)))
                        print(outcomes[-1], flush=True)
                        stage.restore()
    return report(outcomes)


def _needs(fault: Fault) -> tuple[bool, bool, bool]:
    return fault.redis, fault.wired, fault.packets


def _in_a_network_of_our_own(chosen: list[Fault]) -> list[Fault]:
    """All of them, if there can be one; else those that need none."""
    if why := missing():
        print(f"packets are not dropped: {why}", flush=True)
        return [fault for fault in chosen if not fault.packets]
    enter()
    return chosen


def report(outcomes: list[Outcome]) -> int:
    """The table; 1 if anything was wrong, or too slow."""
    bad = [outcome for outcome in outcomes if outcome.wrong or outcome.slow]
    messages = sum(outcome.messages for outcome in outcomes)
    print(
        f"\n{'fault':24} {'runs':>4} {'messages':>8} {'wrong':>5} {'slow':>4} {'back':>6} {'silence':>7} {'others':>6}"
    )
    for name in dict.fromkeys(outcome.fault for outcome in outcomes):
        mine = [outcome for outcome in outcomes if outcome.fault == name]
        print(
            f"{name:24} {len(mine):4} {sum(one.messages for one in mine):8}"
            f" {sum(bool(one.wrong) for one in mine):5} {sum(bool(one.slow) for one in mine):4}"
            f" {max(one.back for one in mine):4.1f} s {max(one.silence for one in mine):5.1f} s"
            f" {sum(one.others for one in mine):6}"
        )
    print(f"{len(outcomes)} runs, {messages} messages: {len(bad)} not as they should be")
    for outcome in bad:
        print(outcome)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
