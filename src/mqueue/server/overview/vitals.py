"""How a server is, in a few numbers: what it runs on, whether it takes messages, what its disk has."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import version

from mqueue.broker import backstage
from mqueue.broker.broker import Broker
from mqueue.model.times import rfc3339
from mqueue.server.http.call import Call
from mqueue.wire.json_cluster import ClusterOut, DiskOut, NodeOut


class LocalVitals:
    """Of a server that is alone. `connections` counts those that are open."""

    def __init__(self, broker: Broker, address: str, started_at: int, connections: Callable[[], int]) -> None:
        self._broker = broker
        self._address = address
        self._started_at = started_at
        self._connections = connections

    async def look(self, call: Call) -> ClusterOut:
        return ClusterOut([self.node()])

    def node(self) -> NodeOut:
        disk = backstage.disk_numbers(self._broker)
        return NodeOut(
            self._address,
            version=version("mqueue"),
            started_at=rfc3339(self._started_at),
            trouble=backstage.trouble(self._broker),
            connections=self._connections(),
            leases=backstage.leases(self._broker),
            storage="memory" if disk is None else "disk",
            disk=None if disk is None else DiskOut(disk.bytes, disk.free_bytes, disk.segments, disk.damage),
        )
