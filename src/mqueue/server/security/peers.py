"""Where a call comes from, how often it may, and which addresses may be listened on.

Does not know HTTP: it is handed the address of the socket and the values of one header. Time is an argument.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Protocol

from mqueue.model.errors import BadSetting, QuotaExceeded

HOPS_MAX = 32
PEERS_MAX = 65_536
_V6_GROUP_BITS = 64
_TOKEN = 1000
"""Tokens are counted in thousandths, so that a millisecond refills a whole number of them."""

Address = IPv4Address | IPv6Address


class Proxies:
    """The proxies of ours that may say for whom they call. None by default: then a header changes nothing."""

    def __init__(self, trusted: Iterable[str] = ()) -> None:
        try:
            self._networks = tuple(ip_network(each) for each in trusted)
        except ValueError as error:
            raise BadSetting(f"trusted proxies: {error}") from None

    def client(self, peer: str, forwarded: Sequence[str] = ()) -> str:
        """The address nearest to us that none of our proxies has: everything left of it may be invented.

        A hop that cannot be read ends the walk; the proxy that passed it on answers for it.
        """
        found = _address(peer)
        if found is None:  # a Unix socket, or a transport without addresses
            return peer
        hops = ",".join(forwarded).rsplit(",", HOPS_MAX) if forwarded else []
        for hop in reversed(hops[-HOPS_MAX:]):
            if not self._trusts(found):
                break
            before = _address(_without_port(hop.strip()))
            if before is None:
                break
            found = before
        return str(found)

    def _trusts(self, address: Address) -> bool:
        return any(address in network for network in self._networks)


def group(address: str) -> str:
    """Whom to count together: an IPv6 /64 is one customer, who can take any of its addresses."""
    found = _address(address)
    if isinstance(found, IPv6Address):
        return str(IPv6Network((int(found) >> _V6_GROUP_BITS << _V6_GROUP_BITS, _V6_GROUP_BITS)))
    return address if found is None else str(found)


class Limit(Protocol):
    """How often peers may call. Those who do not share it with others have a `RateLimit`."""

    def admit(self, peer: str, now: int) -> None:
        """Let a call through or raise QuotaExceeded."""

    def is_same(self, per_second: int, burst: int) -> bool: ...


class RateLimit:
    """A token bucket for each peer (or subject). When the table is full the peer unheard for longest is forgotten.

    Forgetting gives that peer a full bucket again. To use this, somebody needs more addresses than the table has
    room for, and so many addresses have as many buckets anyway; refusing newcomers instead would let them lock
    everybody out.
    """

    def __init__(self, per_second: int, burst: int, peers_max: int = PEERS_MAX) -> None:
        if per_second < 1 or burst < 1 or peers_max < 1:
            raise BadSetting(f"rate limit of {per_second} a second, burst {burst}, {peers_max} peers: at least 1 each")
        self._per_second, self._full, self._peers_max = per_second, burst * _TOKEN, peers_max
        # What is left and when that was so; in the order in which they were heard.
        self._buckets: dict[str, tuple[int, int]] = {}

    def admit(self, peer: str, now: int, cost: int = 1) -> None:
        """Take tokens or refuse and take none. A clock that steps back refills nothing."""
        left, at = self._buckets.pop(peer, (self._full, now))
        later = max(at, now)
        left = min(self._full, left + self._per_second * (later - at))
        missing = cost * _TOKEN - left
        self._buckets[peer] = (left if missing > 0 else -missing, later)
        if len(self._buckets) > self._peers_max:
            del self._buckets[next(iter(self._buckets))]
        if missing > 0:
            wait_ms = -(-missing // self._per_second) + later - now
            raise QuotaExceeded("too many calls from here", code="rate_limited", retry_after=wait_ms / 1000)

    def is_same(self, per_second: int, burst: int) -> bool:
        return (self._per_second, self._full) == (per_second, burst * _TOKEN)

    def __len__(self) -> int:
        return len(self._buckets)


def bind_allowed(host: str, auth: bool, tls: bool, told: bool) -> bool:
    """Whether to listen here: on this machine always, elsewhere with both locks, or when told to do without."""
    return told or (auth and tls) or is_local(host)


def check_bind(host: str, auth: bool, tls: bool, told: bool) -> None:
    if not bind_allowed(host, auth, tls, told):
        missing = " and ".join(name for name, there in (("authentication", auth), ("TLS", tls)) if not there)
        raise BadSetting(f"{host!r:.80} can be reached by others, and there is no {missing}: set it up, or allow it")


def is_local(host: str) -> bool:
    """Whether this is an address of this machine alone.

    A name other than localhost could be any address, and an empty one is all of them.
    """
    found = _address(host.removeprefix("[").removesuffix("]"))
    return host == "localhost" or host.startswith(("/", "unix:")) or (found is not None and found.is_loopback)


def _address(text: str) -> Address | None:
    """IPv4 inside IPv6 is IPv4, or one peer would have two names. Zones are of no use beyond this machine."""
    try:
        found = ip_address(text.partition("%")[0])
    except ValueError:
        return None
    if isinstance(found, IPv6Address) and found.ipv4_mapped is not None:
        return found.ipv4_mapped
    return found


def _without_port(hop: str) -> str:
    if hop.startswith("["):
        return hop[1:].partition("]")[0]
    return hop.partition(":")[0] if hop.count(":") == 1 else hop
