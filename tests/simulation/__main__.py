"""Runs seeds and says what they found: `python -m tests.simulation --seed 7 --runs 3`. Fails if a promise broke."""

from __future__ import annotations

import argparse
import sys
from time import perf_counter

from tests.simulation.recall import recall, tiny
from tests.simulation.run import Outcome, simulate


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--runs", type=int, default=1, help="how many seeds, one after the other")
    chosen = parser.parse_args()
    began, states, broken = perf_counter(), 0, list[Outcome]()
    with recall(), tiny():
        for seed in range(chosen.seed, chosen.seed + chosen.runs):
            outcome = simulate(seed)
            states += outcome.states
            print(f"seed {seed}: {outcome.states} states, {len(outcome.violations)} violations, {outcome.digest}")
            for violation in outcome.violations:
                print(f"  {violation}")
            if outcome.violations:
                broken.append(outcome)
    print(f"{states} states in {perf_counter() - began:.0f} s, {len(broken)} of {chosen.runs} runs with violations")
    if broken:
        print(f"the first: seed {broken[0].seed}; again: make sim SEED={broken[0].seed}")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
