"""Those who wait at a node for what they published, each for his own: others may fail."""

from __future__ import annotations

import asyncio
from typing import TypeAlias

from mqueue.log.postgres.batch import Promise

Ticket: TypeAlias = "tuple[list[Promise], asyncio.Future[None]]"
"""Somebody, and what he waits for."""


def answered(tickets: list[Ticket]) -> list[Ticket]:
    """Tell everybody whose messages have their places, or never will; those who go on waiting."""
    left: list[Ticket] = []
    for promises, future in tickets:
        failed = next((promise.failed for promise in promises if promise.failed is not None), None)
        if future.done():
            continue
        if failed is not None:
            future.set_exception(failed)
        elif all(promise.landed for promise in promises):
            future.set_result(None)
        else:
            left.append((promises, future))
    return left
