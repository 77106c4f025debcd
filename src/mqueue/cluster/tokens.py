"""Lease tokens of a cluster: they tell the virtual shard that gave them out, so that any node knows where they belong.

They are those of `mqueue.store.tokens`: of the epoch that they begin with, the lower 10 bits are the virtual shard.
"""

from __future__ import annotations


def token_epoch(vshard: int, epoch: int) -> int:
    """What the tokens of a virtual shard begin with: they tell it, and later ones are greater."""
    return (epoch & 0x3FFFFF) << 10 | vshard


def is_later(token: str, vshard: int, epoch: int) -> bool:
    """Whether a token was given out by a later owner of a virtual shard than that of this epoch."""
    try:
        given = int(token[:8], 16)
    except ValueError:  # that is no token
        return False
    return given & 0x3FF == vshard and given > token_epoch(vshard, epoch)


def vshard_of(token: str) -> int:
    """The virtual shard that gave out a token; -1 if that is no token."""
    try:
        return int(token[:8], 16) & 0x3FF
    except ValueError:
        return -1
