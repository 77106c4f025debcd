"""What time it is on the server, and how long it took to ask."""

from __future__ import annotations

import time

from mqueue.log.postgres.link import Link


def sample(link: Link) -> tuple[int, int, int]:
    """(its milliseconds since 1970, round trip in µs, when the answer came by `monotonic_ns`). A long round trip makes
    the first worth little."""
    link.call("select 1")  # a connection that has yet to be made is not part of it
    sent = time.monotonic_ns()
    rows = link.call("select mqueue.now_ms()")
    came = time.monotonic_ns()
    return int(rows[0][0]), (came - sent) // 1000, came
