"""TLS contexts for both ends, and a server's that changes its certificate while it runs. Above `certificates`.

Knows no sockets: asyncio, uvicorn and tests wrap their own. There is no way here to switch checking off.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable

from mqueue.server.security.certificates import Pair, check_pair
from mqueue.wire import tls as wire


class ServerTls:
    """`context` is for good; the pair behind it can be changed. Handshakes under way end with the one they began with.

    The pair is swapped as a whole, when a client's hello arrives: loading certificate and key into a context that is
    in use would leave a moment in which they do not match.
    """

    def __init__(self, pair: Pair, now: int, client_ca: bytes | None = None) -> None:
        self.client_ca = client_ca
        self.pair = pair
        self.changed: list[Callable[[], None]] = []
        """Told of every other pair: who cannot use `context`."""
        self._current = self.context = server_context(pair, now, client_ca)
        self.context.sni_callback = self._choose

    def reload(self, pair: Pair, now: int) -> bool:
        """Whether it changed. A pair that is not good is refused (BadSetting), and the old one stays."""
        if pair == self.pair:
            return False
        self._current = server_context(pair, now, self.client_ca)
        self.pair = pair
        for tell in self.changed:
            tell()
        return True

    def _choose(self, connection: ssl.SSLObject | ssl.SSLSocket, name: str | None, context: ssl.SSLContext) -> None:
        """Called for every hello, with a server name in it or without."""
        connection.context = self._current


def server_context(pair: Pair, now: int, client_ca: bytes | None = None) -> ssl.SSLContext:
    """With `client_ca` (PEM) only clients come in that show a certificate signed by it."""
    context = wire.base_context(ssl.PROTOCOL_TLS_SERVER)
    wire.load(context, _identity(check_pair(pair, now)))
    # A ticket would carry a session, and the identity in it, past a change of certificate or client authority.
    context.num_tickets = 0
    context.options |= ssl.OP_NO_TICKET | ssl.OP_CIPHER_SERVER_PREFERENCE | ssl.OP_NO_RENEGOTIATION
    if client_ca is not None:
        wire.trust(context, client_ca)
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def _identity(pair: Pair) -> bytes:
    return pair.key + b"\n" + pair.certificate
