"""What time it is on the server, and how long it took to ask."""

from __future__ import annotations

import time

from mqueue.log.postgres.link import Link

_TRIES = 10
_SECONDS = 0.3


def sample(link: Link, enough_us: int) -> tuple[int, int, int]:
    """(its milliseconds since 1970, round trip in µs, when the answer came by `monotonic_ns`).

    A long round trip makes the first worth little: the quickest of some, unless one is quick enough. Busy machines have
    quick moments, too. A slow line has none: it is not asked for long.
    """
    link.call("select 1")  # a connection that has yet to be made is not part of it
    until = time.monotonic() + _SECONDS
    best = _ask(link)
    for _ in range(_TRIES - 1):
        if best[1] <= enough_us or time.monotonic() > until:
            break
        best = min(best, _ask(link), key=lambda found: found[1])
    return best


def _ask(link: Link) -> tuple[int, int, int]:
    sent = time.monotonic_ns()
    rows = link.call("select mqueue.now_ms()")
    came = time.monotonic_ns()
    return int(rows[0][0]), (came - sent) // 1000, came
