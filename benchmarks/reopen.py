"""`python -m benchmarks.reopen DIRECTORY`: open a data directory in a process of its own; how long, how much memory.

The process ends without closing the broker, so it writes no checkpoint and no index: the directory stays as it was.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from time import perf_counter

import pyarrow as pa  # before the clock starts: it takes longer to load than many a log

from mqueue import Broker

PAGE = os.sysconf("SC_PAGE_SIZE")


def main(directory: str) -> None:
    before = _resident()
    started = perf_counter()
    broker = Broker(directory)
    seconds = perf_counter() - started
    grown = _resident() - before
    depth = sum(broker.stats(topic).depth for topic in broker.topics())
    assert pa.__version__
    print(json.dumps({"seconds": seconds, "grown": grown, "depth": depth}), flush=True)
    os._exit(0)


def _resident() -> int:
    """How much memory the process has; 0 where the system does not tell."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE
    except OSError:
        return 0


if __name__ == "__main__":
    main(sys.argv[1])
