"""Who is calling and what they may do. First stop behind every way to prove oneself: token, key, certificate.

A grant is written `scope:namespace` or `scope:namespace/topics`, e.g. `read:tenant-a`, `write:tenant-a/orders.*`,
`admin:*`. None of `:`, `/`, `*` can be part of a name, so there is one way to read each. Does not know how the caller
proved who they are, nor which namespaces exist.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from typing import Literal, get_args

from msgspec import Struct

from mqueue.model.errors import BadName, BadSetting, Forbidden, Unauthorized
from mqueue.model.names import check_name, is_dlq, origin

Verb = Literal["publish", "receive", "settle", "read", "manage"]
Scope = Literal["read", "write", "admin"]

ANY = "*"
SCOPES: frozenset[str] = frozenset(get_args(Scope))
SUBJECT_LENGTH_MAX = 255
GRANTS_MAX = 256
UNIFORM = "the credentials were not accepted"

# An admin may do everything in the namespace: they could grant it to themselves anyway.
_NEEDED: dict[Verb, frozenset[str]] = {
    "publish": frozenset({"write", "admin"}),
    "receive": frozenset({"read", "admin"}),
    "settle": frozenset({"read", "admin"}),
    "read": frozenset({"read", "admin"}),
    "manage": frozenset({"admin"}),
}


class Rejected(Unauthorized):
    """One sentence for every reason, so that a caller learns nothing by trying. `why` is for the audit log alone."""

    def __init__(self, why: str, told: str = UNIFORM) -> None:
        super().__init__(told)
        self.why = why


class Untimely(Rejected):
    """Signed by a clock that is off. That may be told: it is found out before anybody looks for a key."""

    code = "clock_skew"


class Grant(Struct, frozen=True):
    scope: str
    namespace: str
    topics: str = ANY

    def covers(self, namespace: str, topic: str | None) -> bool:
        return self.namespace in (ANY, namespace) and _matches(self.topics, topic)


class Principal(Struct, frozen=True):
    """Somebody who proved who they are. `via` says how: token, key or certificate."""

    subject: str
    grants: tuple[Grant, ...] = ()
    via: str = "token"

    def allows(self, verb: Verb, namespace: str, topic: str | None = None) -> bool:
        """Without a topic the whole namespace is asked for; with namespace `*`, the whole server."""
        needed = _NEEDED[verb]
        for grant in self.grants:  # noqa: SIM110 - every request passes here
            if grant.scope in needed and grant.covers(namespace, topic):
                return True
        return False

    def reaches(self, verb: Verb, namespace: str | None) -> bool:
        """Whether there may be topics in a namespace, or in any, that this is allowed in."""
        needed = _NEEDED[verb]
        grants = (grant for grant in self.grants if grant.scope in needed)
        return any(namespace is None or grant.namespace in (ANY, namespace) for grant in grants)

    def demand(self, verb: Verb, namespace: str, topic: str | None = None) -> None:
        """Names only what the caller asked for, so that it is no way to find out what exists."""
        if not self.allows(verb, namespace, topic):
            where = f"{namespace}/{topic}" if topic is not None else namespace
            raise Forbidden(f"{self.subject!r:.80} may not {verb} in {where!r:.300}")


def parse_grant(text: str) -> tuple[Grant, ...]:
    """One grant, or three for the scope `*`. Raises BadSetting: a right that cannot be read must not be guessed."""
    scope, colon, place = text.partition(":")
    namespace, slash, topics = place.partition("/")
    if scope not in SCOPES and scope != ANY:
        raise BadSetting(f"grant {text!r:.80}: scope {scope!r:.80}; it is one of read, write, admin, *")
    if not colon or (slash and not topics):
        raise BadSetting(f"grant {text!r:.80} does not read scope:namespace or scope:namespace/topics")
    try:
        _check_pattern(namespace, topics or ANY)
    except BadName as error:
        raise BadSetting(f"grant {text!r:.80}: {error.message}") from None
    return tuple(Grant(each, namespace, topics or ANY) for each in (sorted(SCOPES) if scope == ANY else (scope,)))


def parse_grants(texts: Iterable[str]) -> tuple[Grant, ...]:
    grants = tuple(dict.fromkeys(grant for text in texts for grant in parse_grant(text)))
    if len(grants) > GRANTS_MAX:
        raise BadSetting(f"{len(grants)} grants: at most {GRANTS_MAX} are allowed")
    return grants


def is_subject(value: object) -> bool:
    """Text that looks the same to everybody who reads it: no control, invisible or look-alike compatibility signs."""
    return (
        isinstance(value, str)
        and 0 < len(value) <= SUBJECT_LENGTH_MAX
        and value.isprintable()
        and value == value.strip()
        and value == unicodedata.normalize("NFKC", value)
    )


def _check_pattern(namespace: str, topics: str) -> None:
    """`*` stands alone or for whole parts behind a dot: `team-a*` would take in team-ab, so it is no pattern."""
    if namespace != ANY:
        check_name(namespace, "namespace")
    if topics != ANY:
        check_name(topics.removesuffix(".*"), "topic")


def _matches(pattern: str, topic: str | None) -> bool:
    """Dead letters belong to the topic they died in: `orders` covers orders.dlq, and `orders.*` does not.

    Not the other way round: whoever may look after orders.dlq may not therefore touch orders.
    """
    if pattern == ANY:
        return True
    if topic is None:
        return False
    if topic == pattern:
        return True
    while is_dlq(topic):
        topic = origin(topic)
    if pattern.endswith(".*"):
        prefix = pattern[:-1]
        return topic.startswith(prefix) and len(topic) > len(prefix)
    return topic == pattern
