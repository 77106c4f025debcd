"""The nodes of a cluster, or the one server there is: how they are."""

from __future__ import annotations

from mqueue.server.http.answer import Answer, as_json
from mqueue.server.http.call import Call
from mqueue.server.http.routes import Route
from mqueue.wire.json_cluster import ClusterOut

PATH = "/v1/cluster"


async def cluster(call: Call) -> Answer:
    return as_json(await call.service.vitals.look(call), headers=(("cache-control", "no-store"),))


ROUTES = (Route("GET", PATH, cluster, "read", "server", "Show how nodes and their servers are", gives=ClusterOut),)
