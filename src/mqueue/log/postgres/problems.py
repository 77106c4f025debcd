"""What may go wrong at a PostgreSQL server, in our words: answers of our functions, and a server that is in trouble.

The first are exceptions of their own, for who called: they never reach a user as they are. The second is `ShardDown`.
A message names the server by host, port and database, never the password.
"""

from __future__ import annotations

import re
from datetime import date

import psycopg

from mqueue.model.errors import BadSetting, ShardDown


class Moved(Exception):
    """The virtual shard does not live here, or its place has changed since."""


class Flushed(Exception):
    """Another part of this log was flushed last: this one does not follow it."""


class Fenced(Exception):
    """Another node owns the virtual shard now, or its journal goes on elsewhere: what is known of it is out of date."""


class Taken(Exception):
    """An idempotency key is somebody's already."""


class NoTopic(Exception):
    """The topic is not there any more."""


class Changed(Exception):
    """The topic has other settings by now than those that something was made for."""


class NoQuorum(Exception):
    """No standby confirms what is committed there: the server is not set up for it."""


class TopicTaken(Exception):
    """The number of a topic is another's at the server that it is to go to."""


class NoDay(Exception):
    """There is no table for a day yet."""

    def __init__(self, day: date) -> None:
        super().__init__(f"there is no table for {day}")
        self.day = day


class Outrun(Exception):
    """Somebody else has changed the schema meanwhile."""


class Rejected(ShardDown):
    """The server is there and does not let us in: user, password or database are wrong."""


class Ended(ShardDown):
    """The server ended our session while a statement ran. It did so before the commit, or right after it."""


class Standby(ShardDown):
    """The server follows another: nothing can be written there."""


class Outdated(ShardDown):
    """The server is the primary no more, or was set back: what it holds and says does not count."""

    code = "old_timeline"


class Stranger(ShardDown):
    """The server is not one of those that hold this shard."""

    code = "other_system"


class Broken(ShardDown):
    """The one connection that calls had to go over is gone, and what its session had locked. Nothing was sent."""


class Busy(ShardDown):
    """Somebody holds a lock for so long that it was not waited for."""


_ANSWERS: dict[str, type[Exception]] = {
    "MQ001": Moved,
    "MQ002": Flushed,
    "MQ003": Fenced,
    "MQ004": Taken,
    "MQ005": NoTopic,
    "MQ006": Changed,
    "MQ007": Outrun,
    "MQ008": NoQuorum,
    "MQ009": TopicTaken,
    "21000": Taken,  # the same key twice in one call
}
_DAILY = ("frames", "journal", "journal_index")
_NO_PARTITION = "23514"
_NOT_UNIQUE = "23505"
_NO_RIGHT = "42501"
_LOCKED = "55P03"
_DAY = re.compile(r"\d{4,}-\d\d-\d\d")

_TROUBLE = ("08", "25", "40", "53", "57", "58", "XX")
"""Classes of errors that are the server's trouble, not ours: the same call may go well a little later."""
_MISSING = {"3F000", "42P01", "42883", "42703", "42804"}
"""A schema, table or function that is not there: somebody changed the database under us."""
_REJECTION = re.compile(
    r"FATAL: +(password authentication failed|(database|role) \S+ does not exist|permission denied for database"
    r"|no pg_hba\.conf entry)|no password supplied"
)
_READ_ONLY = "session is read-only"
_SESSION = "57P"
_CRASHED = "57P02"
"""The server is in disorder. Also other ends of a session may come after a commit, for whoever has to know: `Ended`."""


def translated(error: psycopg.Error, server: str) -> Exception:
    """What an error means that came while a statement was running."""
    state = error.sqlstate or ""
    diagnosis = error.diag
    said = diagnosis.message_primary or ""
    if state in _ANSWERS:
        return _ANSWERS[state](said)
    if state == _NO_PARTITION and diagnosis.table_name in _DAILY:
        day = _DAY.search(diagnosis.message_detail or "")
        assert day is not None, diagnosis.message_detail
        return NoDay(date.fromisoformat(day[0]))
    if state == _NOT_UNIQUE and (diagnosis.table_name or "").startswith("journal"):
        return Fenced(said)
    if state == _NO_RIGHT:
        return BadSetting(f"PostgreSQL at {server} does not allow it: {said}")
    if state == _LOCKED:
        return Busy(f"PostgreSQL at {server} is busy: {said}")
    if not state:
        return lost(server, one_line(error))
    if state[:2] in _TROUBLE or state in _MISSING:
        applied = None if state == _CRASHED else False
        kind = Ended if state.startswith(_SESSION) else ShardDown
        return kind(f"PostgreSQL at {server} failed: {said} ({state})", applied=applied, retry_after=1)
    return error


def lost(server: str, why: str) -> ShardDown:
    """The line broke while a statement was running: nobody knows what became of it."""
    return ShardDown(f"PostgreSQL at {server} did not answer: {why}", applied=None, retry_after=1)


def unreachable(server: str, why: str, retry_after: float) -> ShardDown:
    """No connection could be made. The library hands on words only: what a server that speaks another language says is
    taken for trouble that may pass."""
    if why.endswith(_READ_ONLY):
        return standby(server)
    kind, what = (Rejected, "does not let us in") if _REJECTION.search(why) else (ShardDown, "cannot be reached")
    return kind(f"PostgreSQL at {server} {what}: {why}", applied=False, retry_after=retry_after)


def standby(server: str) -> Standby:
    return Standby(f"PostgreSQL at {server} is a standby: it takes no messages")


def again(problem: ShardDown, retry_after: float) -> ShardDown:
    """The same, said to somebody else."""
    return type(problem)(problem.message, code=problem.code, applied=problem.applied, retry_after=retry_after)


def one_line(error: Exception) -> str:
    return " ".join(str(error).split())
