"""Topics that nobody has read yet are not in the memory of the node that delivers them. Whoever counts what there is
has them taken over first, as `stats` does: else what nobody consumes would be what nobody sees."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from mqueue.cluster.estate import Estate
from mqueue.model.errors import Unavailable

_PATIENCE_SECONDS = 1.0
"""What is not there by then is there the next time: it goes on."""


async def waken(estate: Estate) -> None:
    """In the loop of the estate. A server that cannot be asked now is left as it is."""
    with suppress(Unavailable, TimeoutError):
        async with asyncio.timeout(_PATIENCE_SECONDS):
            await estate.everything()
