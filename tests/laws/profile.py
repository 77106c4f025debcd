"""How long the laws run: a short, repeatable profile for every build, and a long one with a new seed each time.

`MQUEUE_LAWS=long` chooses the long one; `MQUEUE_LAWS_SEED=n` repeats a run whose seed was printed.
"""

from __future__ import annotations

import os
import random

from hypothesis import HealthCheck, settings

LONG = os.environ.get("MQUEUE_LAWS") == "long"
SEED = int(os.environ.get("MQUEUE_LAWS_SEED") or (random.SystemRandom().randrange(2**32) if LONG else 20260101))


def profile(short: int, long: int, steps: int = 40) -> settings:
    return settings(
        max_examples=long if LONG else short,
        stateful_step_count=steps,
        deadline=None,
        print_blob=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
