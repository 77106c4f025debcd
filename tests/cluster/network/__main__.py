"""The process of `wires`: told by lines of JSON what to do, ends with its standard input."""

from __future__ import annotations

import asyncio
import sys

import msgspec

from tests.cluster.network.proxy import Weather, Wire
from tests.cluster.network.wires import Told


async def serve() -> None:
    wires: list[Wire] = []
    decoder = msgspec.json.Decoder(Told)
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        answer = await obey(decoder.decode(line), wires)
        sys.stdout.write(f"{answer}\n")
        sys.stdout.flush()
    for wire in wires:
        await wire.close()


async def obey(told: Told, wires: list[Wire]) -> int:
    if told.do == "open":
        wire = Wire(told.target)
        await wire.open()
        wires.append(wire)
        return wire.port
    wire = next(wire for wire in wires if wire.port == told.port)
    if told.do == "set":
        await wire.set(told.weather or Weather(), told.reset)
    elif told.do == "abandon":
        return wire.abandon(told.side)
    return wire.connections


if __name__ == "__main__":
    asyncio.run(serve())
