"""What is asked of the whole cluster: which topics there are, which namespaces, how much of everything.

Names come from the catalogs of all servers. Numbers are those of the virtual shards that this node owns.
"""

from __future__ import annotations

from collections import Counter

from mqueue.broker.numbers import metrics
from mqueue.cluster.estate import Estate
from mqueue.log.postgres import catalog

_NAMES_MAX = 1 << 31


def topics(estate: Estate, namespace: str) -> list[str]:
    return catalog.names(estate.reader, namespace, "", _NAMES_MAX)


def namespaces(estate: Estate) -> dict[str, int]:
    """How many topics each has."""
    return catalog.namespaces(estate.reader)


async def totals(estate: Estate, namespace: str | None) -> Counter[str]:
    """In the loop of the estate."""
    found: Counter[str] = Counter()
    for holding in list(estate.holdings.values()):
        with holding.gate.inside:
            found.update(metrics(holding.engine, holding.engine.clock.now(), namespace))
    return found
