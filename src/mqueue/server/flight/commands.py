"""What a consumer says over a DoExchange stream, and what it is told: JSON in `app_metadata`."""

from __future__ import annotations

from msgspec import UNSET, Struct, UnsetType

from mqueue.model.errors import Refused
from mqueue.wire.json import ErrorBody

_TAKEN = {"ack": (), "nack": ("delay", "error"), "reject": ("error",), "release": (), "extend": ("visibility",)}


class Receive(Struct, forbid_unknown_fields=True):
    limit: int = 1
    wait: float | str | None = None


class Settle(Struct, forbid_unknown_fields=True):
    """`ids` None: the whole lease, or what is left of it. The rest as the verb takes it."""

    lease: str
    ids: list[str] | None = None
    delay: float | str | None = None
    error: str | None = None
    visibility: float | str | None = None


class Command(Struct, forbid_unknown_fields=True):
    """One of these, and what comes back with the answer."""

    receive: Receive | None = None
    ack: Settle | None = None
    nack: Settle | None = None
    reject: Settle | None = None
    release: Settle | None = None
    extend: Settle | None = None
    seq: int | str | UnsetType = UNSET

    def chosen(self) -> tuple[str, Receive | Settle]:
        """The verb, and what is said about it. Raises Refused."""
        verbs = [name for name in self.__struct_fields__[:-1] if getattr(self, name) is not None]
        if len(verbs) != 1:
            raise Refused(f"{len(verbs)} verbs in a command; it takes one", code="bad_command")
        asked: Receive | Settle = getattr(self, verbs[0])
        if isinstance(asked, Settle):
            _check(verbs[0], asked)
        return verbs[0], asked


class Given(Struct):
    """What was received; nothing: no lease."""

    lease: str | None = None
    count: int = 0
    remaining_ms: int = 0


class Settled(Struct):
    settled: int
    lost: list[str]


class Answer(Struct, omit_defaults=True):
    """The answer to a command, under the name of its verb; or what was wrong."""

    receive: Given | None = None
    ack: Settled | None = None
    nack: Settled | None = None
    reject: Settled | None = None
    release: Settled | None = None
    extend: Settled | None = None
    error: ErrorBody | None = None
    seq: int | str | UnsetType = UNSET


def _check(verb: str, asked: Settle) -> None:
    """What a verb does not take is refused."""
    for name in ("delay", "error", "visibility"):
        if getattr(asked, name) is not None and name not in _TAKEN[verb]:
            raise Refused(f"{verb} takes no {name}", code="bad_command")
    if verb == "extend" and asked.visibility is None:
        raise Refused("extend takes a visibility; none is given", code="bad_command")
