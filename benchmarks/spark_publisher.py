"""`python -m benchmarks.spark_publisher URL TOPIC RATE SECONDS`: publish on a schedule that waits for nobody.

Ends by telling how many messages it published, and how many seconds behind its schedule it ever was.
"""

from __future__ import annotations

import json
import sys
import threading
from time import monotonic

import pyarrow as pa

from benchmarks.spark_place import payloads
from mqueue import Client

TURNS = 10
"""Calls a second."""


def publish(url: str, topic: str, rate: int, seconds: int) -> dict[str, float]:
    size = rate // TURNS
    never = threading.Event()
    late = 0.0
    with Client(url, encoding="arrow") as client:
        began = monotonic()
        for turn in range(seconds * TURNS):
            ahead = began + turn / TURNS - monotonic()
            if ahead > 0:
                never.wait(ahead)
            late = max(late, -ahead)
            client.publish_arrow(topic, pa.table({"payload": payloads(turn * size, (turn + 1) * size)}))
        return {"messages": seconds * TURNS * size, "seconds": monotonic() - began, "late": late}


if __name__ == "__main__":
    print(json.dumps(publish(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))))
