"""What time it is on the server, and how long it took to ask."""

from __future__ import annotations

import time

from mqueue.log.postgres.link import Link


def sample(link: Link) -> tuple[int, int]:
    """(its milliseconds since 1970, round trip in µs). A long round trip makes the first worth little."""
    link.call("select 1")  # a connection that has yet to be made is not part of it
    sent = time.perf_counter_ns()
    rows = link.call("select mqueue.now_ms()")
    return int(rows[0][0]), (time.perf_counter_ns() - sent) // 1000
