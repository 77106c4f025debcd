"""The door of a server: from what a call brings with it to a `Principal`, or a refusal that is written down.

Which proofs are taken stands in `Rules`, one value that is exchanged as a whole while the server runs. A call that
brings credentials is judged by them alone: bad ones are not forgiven because of a good certificate. Knows headers as a
mapping of lower-case names, and no HTTP beyond that. Time is an argument.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from msgspec import Struct

from mqueue.model.errors import QuotaExceeded
from mqueue.server.security.audit import Audit, Decision, Outcome
from mqueue.server.security.certificates import principal_of
from mqueue.server.security.keys import PREFIX, Keys
from mqueue.server.security.peers import Limit, Proxies, RateLimit, group
from mqueue.server.security.principal import ANY, Grant, Principal, Rejected
from mqueue.server.security.sigv4 import Claim
from mqueue.server.security.tokens import Verifier

ANYBODY = Principal("anybody", (Grant("admin", ANY),), via="open")
"""Who calls where no proof is asked for."""

CERTIFICATES_MAX = 4096
REFUSALS_PER_SECOND = 20
REFUSALS_BURST = 200


class Rules(Struct, frozen=True):
    """What is taken as a proof. Where none is, nobody is let in, unless `anybody` is, who may do everything then."""

    tokens: Verifier | None = None
    keys: Keys | None = None
    clients: Mapping[str, Sequence[str]] = MappingProxyType({})
    """Grants by the subject of a client's certificate."""
    proxies: Proxies = Proxies()
    rate: Limit | None = None
    anybody: bool = False


class Refusals(Struct):
    """How often somebody was turned away; for metrics."""

    unauthorized: int = 0
    forbidden: int = 0
    rate_limited: int = 0


class Gatekeeper:
    def __init__(self, rules: Rules, audit: Audit) -> None:
        self._audit = audit
        self.refusals = Refusals()
        self._known: dict[bytes, Principal] = {}
        """Certificates that were read, and whose they are: reading one takes as long as a call."""
        # Strangers must not fill the disk with what is written about them.
        self._patience = RateLimit(REFUSALS_PER_SECOND, REFUSALS_BURST, peers_max=1)
        self._unwritten = 0
        self.rules = rules

    @property
    def rules(self) -> Rules:
        return self._rules

    @rules.setter
    def rules(self, rules: Rules) -> None:
        """From the next call on. What was known of certificates is forgotten: their grants may be others now."""
        self._rules = rules
        self._known = {}

    def peer(self, headers: Mapping[str, str], socket: str) -> str:
        """Where a call comes from: an address that the caller cannot choose."""
        forwarded = headers.get("x-forwarded-for")
        return socket if forwarded is None else self._rules.proxies.client(socket, (forwarded,))

    def caller(self, headers: Mapping[str, str], peer: str, certificate: bytes | None, now: int) -> Principal:
        """Who is calling, from `peer` as the method of that name told it. Raises Unauthorized or QuotaExceeded."""
        rules = self._rules
        if rules.rate is not None:
            self._admit(rules.rate, peer, now)
        return self.known(headers, peer, certificate, now)

    def known(self, headers: Mapping[str, str], peer: str, certificate: bytes | None, now: int) -> Principal:
        """The same, without counting a call: for those who stay, whose proof may end or be taken back meanwhile."""
        rules = self._rules
        return (
            ANYBODY
            if rules.anybody
            else self._judged(lambda: self._proven(rules, headers, certificate, now), peer, now)
        )

    def claimant(self, headers: Mapping[str, str], peer: str, now: int) -> Principal:
        """Who claims to call, by a signature that only `prove` can check: there is no body yet."""
        rules = self._rules
        if rules.rate is not None:
            self._admit(rules.rate, peer, now)
        if rules.anybody:
            return ANYBODY
        return self._judged(lambda: _signer(rules, Claim.of(headers, now), now)[1], peer, now)

    def prove(
        self, headers: Mapping[str, str], method: str, target: str, body: bytes, peer: str, now: int
    ) -> Principal:
        """Who signed this request, now that it is whole. Raises Unauthorized."""
        rules = self._rules

        def proven() -> Principal:
            claim = Claim.of(headers, now)
            secret, principal = _signer(rules, claim, now)
            if not claim.holds(secret, method, target, headers, body):
                raise Rejected("signature")
            return principal

        return ANYBODY if rules.anybody else self._judged(proven, peer, now)

    def _judged(self, proof: Callable[[], Principal], peer: str, now: int) -> Principal:
        """What a proof gives; one that is no good is written down."""
        try:
            return proof()
        except Rejected as error:
            self.refusals.unauthorized += 1
            self._write(Decision(now, "", "enter", "refused", why=error.why, peer=peer), now)
            raise

    def refused(
        self, principal: Principal, what: str, peer: str, now: int, namespace: str = "", topic: str = ""
    ) -> None:
        """Somebody known asked for something they may not do."""
        self.refusals.forbidden += 1
        self._write(_decision(principal, what, "refused", peer, now, namespace, topic), now)

    def changed(
        self, principal: Principal, what: str, peer: str, now: int, namespace: str = "", topic: str = ""
    ) -> None:
        """Somebody managed something: always written down."""
        self._audit.record(_decision(principal, what, "changed", peer, now, namespace, topic))

    def _admit(self, rate: Limit, peer: str, now: int) -> None:
        try:
            rate.admit(group(peer), now)
        except QuotaExceeded:
            self.refusals.rate_limited += 1
            self._write(Decision(now, "", "enter", "refused", why="too many calls", peer=peer), now)
            raise

    def _proven(self, rules: Rules, headers: Mapping[str, str], certificate: bytes | None, now: int) -> Principal:
        credentials = _credentials(headers)
        if credentials is not None:
            return _by_credentials(rules, credentials, now)
        if certificate is None or not rules.clients:
            raise Rejected("no credentials")
        known = self._known.get(certificate)
        if known is None:
            known = principal_of(certificate, rules.clients)
            if len(self._known) >= CERTIFICATES_MAX:
                self._known.clear()
            self._known[certificate] = known
        return known

    def _write(self, decision: Decision, now: int) -> None:
        """Refusals, so many a second; of the rest their number."""
        try:
            self._patience.admit("", now)
        except QuotaExceeded:
            self._unwritten += 1
            return
        if self._unwritten:
            why = f"{self._unwritten} refusals were not written down"
            self._audit.record(Decision(now, "", "audit", "refused", why=why))
            self._unwritten = 0
        self._audit.record(decision)


def _credentials(headers: Mapping[str, str]) -> str | None:
    """The token or key of a call; None: it has none. Headers that came twice are joined, and so are none."""
    bearer, key = headers.get("authorization"), headers.get("x-api-key")
    if bearer is None:
        return key
    if key is not None:
        raise Rejected("two credentials")
    scheme, _, text = bearer.partition(" ")
    if scheme.lower() != "bearer":
        raise Rejected("not a bearer")
    return text.strip(" ")


def _by_credentials(rules: Rules, text: str, now: int) -> Principal:
    if text.startswith(PREFIX):
        if rules.keys is None:
            raise Rejected("keys are not taken")
        return rules.keys.verify(text, now)
    if rules.tokens is None:
        raise Rejected("tokens are not taken")
    return rules.tokens.verify(text, now)


def _signer(rules: Rules, claim: Claim, now: int) -> tuple[str, Principal]:
    if rules.keys is None:
        raise Rejected("keys are not taken")
    return rules.keys.signer(claim.key, now)


def _decision(
    principal: Principal, what: str, outcome: Outcome, peer: str, now: int, namespace: str, topic: str
) -> Decision:
    return Decision(
        now, principal.subject, what, outcome, namespace=namespace, topic=topic, peer=peer, via=principal.via
    )
