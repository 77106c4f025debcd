"""TLS contexts for both ends, and a server's that changes its certificate while it runs. Above `certificates`.

Knows no sockets: asyncio, uvicorn and tests wrap their own. There is no way here to switch checking off.
"""

from __future__ import annotations

import ssl
import tempfile

from mqueue.model.errors import BadSetting
from mqueue.server.security.certificates import Pair, check_pair

# TLS 1.2 with forward secrecy and authenticated encryption only; the suites of TLS 1.3 are all good and stand apart.
CIPHERS = "ECDHE+AESGCM:ECDHE+CHACHA20"


class ServerTls:
    """`context` is for good; the pair behind it can be changed. Handshakes under way end with the one they began with.

    The pair is swapped as a whole, when a client's hello arrives: loading certificate and key into a context that is
    in use would leave a moment in which they do not match.
    """

    def __init__(self, pair: Pair, now: int, client_ca: bytes | None = None) -> None:
        self._client_ca = client_ca
        self._pair = pair
        self._current = self.context = server_context(pair, now, client_ca)
        self.context.sni_callback = self._choose

    def reload(self, pair: Pair, now: int) -> bool:
        """Whether it changed. A pair that is not good is refused (BadSetting), and the old one stays."""
        if pair == self._pair:
            return False
        self._current = server_context(pair, now, self._client_ca)
        self._pair = pair
        return True

    def _choose(self, connection: ssl.SSLObject | ssl.SSLSocket, name: str | None, context: ssl.SSLContext) -> None:
        """Called for every hello, with a server name in it or without."""
        connection.context = self._current


def server_context(pair: Pair, now: int, client_ca: bytes | None = None) -> ssl.SSLContext:
    """With `client_ca` (PEM) only clients come in that show a certificate signed by it."""
    context = _base(ssl.PROTOCOL_TLS_SERVER)
    _load(context, check_pair(pair, now))
    # A ticket would carry a session, and the identity in it, past a change of certificate or client authority.
    context.num_tickets = 0
    context.options |= ssl.OP_NO_TICKET | ssl.OP_CIPHER_SERVER_PREFERENCE | ssl.OP_NO_RENEGOTIATION
    if client_ca is not None:
        _trust(context, client_ca)
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def client_context(ca: bytes | None = None, pair: Pair | None = None, now: int | None = None) -> ssl.SSLContext:
    """Checks chain and name, always. `ca` (PEM): trust this and not what the machine trusts; `pair`: who we are."""
    context = _base(ssl.PROTOCOL_TLS_CLIENT)
    if ca is None:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    else:
        _trust(context, ca)
    if pair is not None:
        _load(context, pair if now is None else check_pair(pair, now))
    assert context.check_hostname
    assert context.verify_mode is ssl.CERT_REQUIRED
    return context


def _base(protocol: int) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers(CIPHERS)
    context.options |= ssl.OP_NO_COMPRESSION
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    return context


def _trust(context: ssl.SSLContext, ca: bytes) -> None:
    try:
        context.load_verify_locations(cadata=ca.decode("ascii"))
    except (ssl.SSLError, ValueError):
        raise BadSetting("the certificates to trust are not PEM that can be read") from None


def _load(context: ssl.SSLContext, pair: Pair) -> None:
    """The ssl module reads keys from files only, so for a moment there is one, for our eyes alone (0600).

    The empty password is for a key that has one: without it the library would stop and ask at the terminal.
    """
    with tempfile.NamedTemporaryFile(prefix="mqueue-") as file:
        file.write(pair.key + b"\n" + pair.certificate)
        file.flush()
        try:
            context.load_cert_chain(file.name, password="")
        except ssl.SSLError:
            raise BadSetting("the TLS certificate and its key cannot be used together") from None
