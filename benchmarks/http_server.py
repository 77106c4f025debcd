"""`python -m benchmarks.http_server JSON`: a server in a process of its own, until its input ends.

The JSON names its directory (`dir`), for how many milliseconds headers may take, the databases and the Redis of a
cluster that it is a node of, whether it listens for Flight and for AMQP, and where its spans go.

Says where it listens; then for each line that it reads, how many seconds of processor time it has used and how much
memory it has.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import sys
from pathlib import Path
from time import process_time
from typing import Any

import uvloop
from msgspec.structs import replace

from benchmarks.disk import STORAGE
from mqueue.assembly.serve import settle_down
from mqueue.assembly.server import Serving
from mqueue.config import Address, Config, Secret, Telemetry

PAGE = os.sysconf("SC_PAGE_SIZE")


async def serve(about: dict[str, Any]) -> None:
    config = Config()
    databases = tuple(map(Secret, about["databases"]))
    redis = config.cluster.redis
    if about["redis"]:
        address, password = about["redis"]
        redis = replace(redis, addresses=(address,), password=Secret(password))
    free = Address("127.0.0.1", 0)
    wanted = {"http": True, "grpc": about["flight"], "amqp": about["amqp"]}
    listeners = {name: free if asked else None for name, asked in wanted.items()}
    config = replace(
        config,
        server=replace(config.server, headers_timeout_ms=about["headers_timeout_ms"], **listeners),
        data=replace(config.data, dir=about["dir"], storage=STORAGE),
        cluster=replace(config.cluster, databases=databases, redis=redis),
    )
    if about["telemetry"]:
        endpoint, ratio = about["telemetry"]
        config = replace(config, telemetry=Telemetry(endpoint, sample_ratio=ratio))
    serving = Serving(config)
    await serving.start()
    settle_down()
    print(json.dumps({name: address.port for name, address in serving.addresses.items()}), flush=True)
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while await reader.readline():
        memory = int(Path("/proc/self/statm").read_text().split()[1]) * PAGE
        print(json.dumps({"seconds": process_time(), "memory": memory}), flush=True)
    await serving.stop()


def main(about: str) -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve(json.loads(about)))


if __name__ == "__main__":
    main(*sys.argv[1:])
