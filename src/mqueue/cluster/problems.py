"""What callers are told of what went wrong between a node and a shard."""

from __future__ import annotations

from mqueue.log.postgres.problems import Changed, Fenced, Moved, NoQuorum, NoTopic, Taken
from mqueue.model.errors import Error, Refused, ShardDown, Unavailable


class AtOwner(Exception):
    """Whoever owns a virtual shard has to be asked. `must`: only he can judge; else he keeps the trace, if he can be
    reached."""

    def __init__(self, vshard: int, *, must: bool) -> None:
        self.vshard = vshard
        self.must = must


REFUSALS = (Changed, Fenced, Moved, NoQuorum, NoTopic, Taken)
"""A statement was refused as a whole: nothing of it was done."""


def reason(problem: BaseException) -> Error:
    """What callers are told whose changes could not be committed."""
    if isinstance(problem, Error):
        return problem
    if isinstance(problem, Fenced | Moved):
        return _for_now("another node delivers from this topic now", code="not_owner")
    if isinstance(problem, NoTopic):
        return _for_now("the topic was deleted meanwhile", code="topic_gone")
    if isinstance(problem, Changed):
        return _for_now("the settings of the topic were changed meanwhile", code="topic_changed")
    if isinstance(problem, Taken):
        return _for_now("an idempotency key is being used by another call", code="key_in_use")
    if isinstance(problem, NoQuorum):
        return no_quorum(str(problem))
    return Unavailable(f"what was changed could not be written: {problem}", code="not_written", applied=None)


def _for_now(why: str, *, code: str) -> Unavailable:
    return Unavailable(f"{why}; try again", code=code, retry_after=1)


def no_quorum(why: str) -> Refused:
    return Refused(f"durability 'quorum' is not to be had here: {why} at the PostgreSQL server", code="no_quorum")


def doubtful(why: Error) -> Error:
    """The same for who waits for a commit that may be under way: nobody knows what becomes of it."""
    kind = ShardDown if isinstance(why, ShardDown) else Unavailable
    return kind(why.message, code=why.code, applied=None)
