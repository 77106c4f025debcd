"""What both ends of a TLS line agree on, and the client's end of it. The server's end is in `server.security.tls`.

Knows no sockets and no files of users: certificates come and go as bytes. There is no way here to switch checking off.
"""

from __future__ import annotations

import ssl
import tempfile

from mqueue.model.errors import BadSetting

# TLS 1.2 with forward secrecy and authenticated encryption only; the suites of TLS 1.3 are all good and stand apart.
CIPHERS = "ECDHE+AESGCM:ECDHE+CHACHA20"


def client_context(ca: bytes | None = None, identity: bytes | None = None) -> ssl.SSLContext:
    """Checks chain and name, always. `ca` (PEM): trust this and not what the machine trusts; `identity` (PEM, key and
    certificate): who we are."""
    context = base_context(ssl.PROTOCOL_TLS_CLIENT)
    if ca is None:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    else:
        trust(context, ca)
    if identity is not None:
        load(context, identity)
    assert context.check_hostname
    assert context.verify_mode is ssl.CERT_REQUIRED
    return context


def base_context(protocol: int) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers(CIPHERS)
    context.options |= ssl.OP_NO_COMPRESSION
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    return context


def trust(context: ssl.SSLContext, ca: bytes) -> None:
    try:
        context.load_verify_locations(cadata=ca.decode("ascii"))
    except (ssl.SSLError, ValueError):
        raise BadSetting("the certificates to trust are not PEM that can be read") from None


def load(context: ssl.SSLContext, identity: bytes) -> None:
    """The ssl module reads keys from files only, so for a moment there is one, for our eyes alone (0600).

    The empty password is for a key that has one: without it the library would stop and ask at the terminal.
    """
    with tempfile.NamedTemporaryFile(prefix="mqueue-") as file:
        file.write(identity)
        file.flush()
        try:
            context.load_cert_chain(file.name, password="")
        except ssl.SSLError:
            raise BadSetting("the TLS certificate and its key cannot be used together") from None
