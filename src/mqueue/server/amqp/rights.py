"""What one connection may do: asked of its principal, remembered for a while. Refusals are written down."""

from __future__ import annotations

from collections.abc import Iterable

from mqueue.model.clock import Clock
from mqueue.model.errors import Error, Forbidden
from mqueue.server.http.service import Door
from mqueue.server.security.principal import ANY, Principal, Verb

_KNOWN_MAX = 1_000


class Rights:
    """`proof` is what the client logged in with: it may end, or be taken back, while the connection stays."""

    def __init__(
        self,
        door: Door,
        clock: Clock,
        principal: Principal,
        proof: dict[str, str],
        peer: str,
        certificate: bytes | None,
    ) -> None:
        self._door = door
        self._clock = clock
        self._principal = principal
        self._proof = proof
        self._peer = peer
        self._certificate = certificate
        self._namespace = ""
        self._known: set[tuple[str, str | None]] = set()

    @property
    def subject(self) -> str:
        return self._principal.subject

    def enter(self, namespace: str) -> None:
        """Raises Forbidden unless there is something that the caller may do there."""
        if not any(grant.namespace in (ANY, namespace) for grant in self._principal.grants):
            raise self._refused("enter", namespace, "")
        self._namespace = namespace

    def demand(self, verb: Verb, topic: str | None) -> None:
        """None: everywhere in the namespace."""
        if (verb, topic) not in self._known:
            if not self._principal.allows(verb, self._namespace, topic):
                raise self._refused(verb, self._namespace, topic)
            if len(self._known) >= _KNOWN_MAX:
                self._known.clear()
            self._known.add((verb, topic))

    def demand_any(self, verbs: Iterable[Verb], topic: str) -> None:
        """One of these will do."""
        wanted = tuple(verbs)
        if not any(self._principal.allows(verb, self._namespace, topic) for verb in wanted):
            raise self._refused(wanted[0], self._namespace, topic)

    def renew(self) -> None:
        """Raises Unauthorized where the proof does not hold any more."""
        found = self._door.known(self._proof, self._peer, self._certificate, self._clock.now())
        if found != self._principal:
            self._principal = found
            self._known.clear()

    def prove(self, proof: dict[str, str]) -> None:
        """Another proof of who it is. Raises Unauthorized, and then the old one holds."""
        before, self._proof = self._proof, proof
        try:
            self.renew()
        except Error:
            self._proof = before
            raise

    def changed(self, what: str, topic: str) -> None:
        """Something was managed: for the audit log."""
        self._door.changed(self._principal, what, self._peer, self._clock.now(), self._namespace, topic)

    def _refused(self, verb: str, namespace: str, topic: str | None) -> Forbidden:
        self._door.refused(self._principal, verb, self._peer, self._clock.now(), namespace, topic or "")
        where = f"{namespace}/{topic}" if topic else namespace
        return Forbidden(f"{self._principal.subject!r:.80} may not {verb} in {where!r:.150}")
