"""TLS: real handshakes, in memory and over sockets, with good peers and bad; certificates that change meanwhile."""

from __future__ import annotations

import socket
import ssl
import stat
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import NameOID

from mqueue.model.errors import BadSetting
from mqueue.server.security.certificates import (
    CERTIFICATE_NAME,
    KEY_NAME,
    Pair,
    check_pair,
    principal_of,
    read_pair,
    self_signed,
    subjects_of,
    write_pair,
)
from mqueue.server.security.principal import Rejected
from mqueue.server.security.tls import ServerTls, server_context
from mqueue.wire import tls as wire

# Handshakes check dates against the machine's clock, so the certificates here have to be of today.
NOW = int(datetime.now(UTC).timestamp() * 1000)
YEAR_MS = 365 * 86_400_000
SERVER = self_signed(NOW)
URI = "spiffe://example/billing"
END = (Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def client_context(ca: bytes | None = None, pair: Pair | None = None) -> ssl.SSLContext:
    """The other end, as a client of ours has it."""
    return wire.client_context(ca, None if pair is None else pair.key + b"\n" + pair.certificate)


class Authority:
    """A certificate authority of a test."""

    def __init__(self, name: str = "authority") -> None:
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self.identifier = x509.SubjectKeyIdentifier.from_public_key(self.key.public_key())
        usage = x509.KeyUsage(True, False, False, False, False, True, True, False, False)
        builder = self._builder(self.name, self.key.public_key())
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        builder = builder.add_extension(usage, critical=True).add_extension(self.identifier, critical=False)
        self.pem = builder.sign(self.key, SHA256()).public_bytes(Encoding.PEM)

    def issue(self, common_name: str = "x", names: Sequence[x509.GeneralName] = ()) -> Pair:
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])
        builder = self._builder(subject, key.public_key())
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        above = x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(self.identifier)
        builder = builder.add_extension(above, critical=False)
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        return Pair(builder.sign(self.key, SHA256()).public_bytes(Encoding.PEM), key.private_bytes(*END))

    def _builder(self, subject: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
        begin = datetime.now(UTC) - timedelta(hours=1)
        serial = x509.random_serial_number()
        return x509.CertificateBuilder(self.name, subject, key, serial, begin, begin + timedelta(days=2))


CA = Authority()


class Line:
    """A TLS connection in memory: both ends step by step in one thread, no port and no waiting."""

    def __init__(self, server: ssl.SSLContext, client: ssl.SSLContext, name: str | None = "localhost") -> None:
        up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.server = server.wrap_bio(up, down, server_side=True)
        self.client = client.wrap_bio(down, up, server_hostname=name)
        waiting = [self.client, self.server]
        for _ in range(10):
            waiting = [end for end in waiting if not _finished(end)]
        assert not waiting, "the handshake did not end"
        self.client.write(b"ping")
        assert self.server.read(10) == b"ping"
        self.server.write(b"pong")
        assert self.client.read(10) == b"pong"


def _finished(end: ssl.SSLObject) -> bool:
    try:
        end.do_handshake()
    except ssl.SSLWantReadError:
        return False
    return True


def der(pair: Pair) -> bytes:
    return x509.load_pem_x509_certificates(pair.certificate)[0].public_bytes(Encoding.DER)


@pytest.mark.parametrize("name", ["localhost", "127.0.0.1", "::1"])
def test_a_self_signed_server_is_trusted_by_who_was_given_its_certificate(name: str) -> None:
    line = Line(server_context(SERVER, NOW), client_context(SERVER.certificate), name)
    assert line.client.version() == "TLSv1.3"
    assert line.client.getpeercert(binary_form=True) == der(SERVER)


@pytest.mark.parametrize(
    ("ca", "name"),
    [
        (None, "localhost"),
        (CA.pem, "localhost"),
        (SERVER.certificate, "evil.example"),
        (SERVER.certificate, "localhost.evil.example"),
        (SERVER.certificate, "127.0.0.2"),
    ],
)
def test_a_server_that_is_not_the_one_is_refused(ca: bytes | None, name: str) -> None:
    with pytest.raises(ssl.SSLCertVerificationError):
        Line(server_context(SERVER, NOW), client_context(ca), name)


def test_a_self_signed_certificate_cannot_sign_others() -> None:
    """Whoever steals the key of a test server must not be able to pass for another."""
    made = x509.load_pem_x509_certificate(SERVER.certificate)
    assert not made.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    forger = Authority()
    forger.key = load_pem_private_key(SERVER.key, None)  # type: ignore[assignment]
    forger.name = made.subject
    forger.identifier = x509.SubjectKeyIdentifier.from_public_key(forger.key.public_key())
    forged = forger.issue(names=[x509.DNSName("bank.example")])
    chain = Pair(forged.certificate + SERVER.certificate, forged.key)
    with pytest.raises(ssl.SSLCertVerificationError):
        Line(server_context(chain, NOW), client_context(SERVER.certificate), "bank.example")


def test_old_versions_and_weak_ciphers_get_nowhere() -> None:
    client = client_context(SERVER.certificate)
    client.maximum_version = ssl.TLSVersion.TLSv1_2
    line = Line(server_context(SERVER, NOW), client)
    assert line.client.version() == "TLSv1.2"
    cipher = line.client.cipher()
    assert cipher is not None
    assert cipher[0].startswith("ECDHE-")
    client.set_ciphers("AES128-SHA:AES256-SHA:@SECLEVEL=0")
    with pytest.raises(ssl.SSLError):
        Line(server_context(SERVER, NOW), client)
    for context in (server_context(SERVER, NOW), client_context()):
        assert context.minimum_version is ssl.TLSVersion.TLSv1_2
        names = [each["name"] for each in context.get_ciphers()]
        assert all("GCM" in name or "CHACHA20" in name for name in names)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1])
def test_a_client_of_the_last_decade_is_refused(version: ssl.TLSVersion) -> None:
    client = client_context(SERVER.certificate)
    client.minimum_version = version
    client.maximum_version = version
    client.set_ciphers("ALL:@SECLEVEL=0")
    with pytest.raises(ssl.SSLError):
        Line(server_context(SERVER, NOW), client)


def test_a_client_shows_who_it_is_by_its_alternative_name() -> None:
    pair = CA.issue("admin", [x509.UniformResourceIdentifier(URI)])
    line = Line(server_context(SERVER, NOW, CA.pem), client_context(SERVER.certificate, pair))
    shown = line.server.getpeercert(binary_form=True)
    assert shown is not None
    who = principal_of(shown, {f"uri:{URI}": ["read:a"], "admin": ["*:*"]})
    assert (who.subject, who.via) == (f"uri:{URI}", "certificate")
    assert who.allows("read", "a")
    assert not who.allows("manage", "a")


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize("pair", [None, self_signed(NOW), Authority().issue(), Authority("other").issue()])
def test_a_client_of_nobody_is_refused(pair: Pair | None, version: ssl.TLSVersion) -> None:
    client = client_context(SERVER.certificate, pair)
    client.maximum_version = version
    with pytest.raises(ssl.SSLError):
        Line(server_context(SERVER, NOW, CA.pem), client)


def test_only_known_alternative_names_count() -> None:
    dns, mail = x509.DNSName("Billing.Example"), x509.RFC822Name("a@b.example")
    grants = {"dns:billing.example": ["read:a"], "email:a@b.example": ["read:b"], "billing": ["*:*"]}
    assert subjects_of(der(CA.issue("x", [dns, mail]))) == ("dns:billing.example", "email:a@b.example")
    assert (
        principal_of(der(CA.issue("x", [dns, x509.DNSName("other.example")])), grants).subject == "dns:billing.example"
    )
    for pair in (CA.issue("billing"), CA.issue("dns:billing.example"), CA.issue("x", [dns, mail])):
        with pytest.raises(Rejected):
            principal_of(der(pair), grants)
    for other in ("*.example", "evil-billing.example", "billing.example.evil"):
        with pytest.raises(Rejected):
            principal_of(der(CA.issue("x", [x509.DNSName(other)])), grants)
    with pytest.raises(Rejected):
        principal_of(b"no certificate", grants)


def served(plain: socket.socket, context: ssl.SSLContext) -> bytes:
    """The server's end of a socket pair: what the client said, or why it was not let in."""
    with plain, context.wrap_socket(plain, server_side=True) as line:
        return line.recv(100)


def called(plain: socket.socket, context: ssl.SSLContext) -> None:
    with plain, context.wrap_socket(plain, server_hostname="localhost") as line:
        line.sendall(b"hello")


@pytest.mark.parametrize("good", [True, False])
@pytest.mark.parametrize("side", ["server", "client"])
def test_over_real_sockets(side: str, good: bool) -> None:
    trusted = SERVER.certificate if good or side == "client" else CA.pem
    pair = CA.issue() if good or side == "server" else Authority().issue()
    ours, theirs = socket.socketpair()
    for end in (ours, theirs):
        end.settimeout(120)
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(served, ours, server_context(SERVER, NOW, CA.pem))
        if good:
            called(theirs, client_context(trusted, pair))
            assert answer.result() == b"hello"
        elif side == "server":
            with pytest.raises(ssl.SSLCertVerificationError):
                called(theirs, client_context(trusted, pair))
            assert isinstance(answer.exception(), ssl.SSLError | OSError)
        else:
            with suppress(OSError):  # in TLS 1.3 a client may have said its piece before it is turned away
                called(theirs, client_context(trusted, pair))
            assert isinstance(answer.exception(), ssl.SSLCertVerificationError)


@pytest.mark.parametrize("name", ["localhost", "127.0.0.1"])
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_certificate_changes_while_it_runs(name: str, version: ssl.TLSVersion) -> None:
    """Also for clients that call by address and so send no server name."""
    old, new = SERVER, self_signed(NOW)
    tls = ServerTls(old, NOW)
    client = client_context(old.certificate + new.certificate)
    client.maximum_version = version
    before = Line(tls.context, client, name)
    assert tls.reload(new, NOW)
    assert not tls.reload(new, NOW)
    after = Line(tls.context, client, name)
    assert before.client.getpeercert(binary_form=True) == der(old)
    assert after.client.getpeercert(binary_form=True) == der(new)
    before.client.write(b"still here")
    assert before.server.read(20) == b"still here"


def test_clients_are_still_asked_after_a_change() -> None:
    tls = ServerTls(SERVER, NOW, CA.pem)
    new = self_signed(NOW)
    tls.reload(new, NOW)
    Line(tls.context, client_context(new.certificate, CA.issue()))
    for pair in (None, self_signed(NOW), Authority().issue()):
        with pytest.raises(ssl.SSLError):
            Line(tls.context, client_context(new.certificate, pair))


def bad_pairs() -> list[Pair]:
    other = self_signed(NOW)
    locked = load_pem_private_key(other.key, None).private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"password")
    )
    mixed = [
        Pair(SERVER.certificate, other.key),
        Pair(other.certificate, locked),
        Pair(b"", b""),
        Pair(other.key, other.key),
    ]
    return [*mixed, Pair(other.certificate, b"junk"), self_signed(NOW - 2 * YEAR_MS), self_signed(NOW + YEAR_MS)]


@pytest.mark.parametrize("pair", bad_pairs())
def test_a_bad_pair_is_refused_and_the_old_one_stays(pair: Pair) -> None:
    tls = ServerTls(SERVER, NOW)
    with pytest.raises(BadSetting):
        check_pair(pair, NOW)
    with pytest.raises(BadSetting):
        tls.reload(pair, NOW)
    with pytest.raises(BadSetting):
        server_context(pair, NOW)
    Line(tls.context, client_context(SERVER.certificate))


def test_a_client_is_never_asked_for_a_password() -> None:
    with pytest.raises(BadSetting):
        client_context(SERVER.certificate, bad_pairs()[1])


def test_what_to_trust_must_be_readable() -> None:
    for junk in (b"junk", b"\xff", b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"):
        with pytest.raises(BadSetting):
            client_context(junk)
        with pytest.raises(BadSetting):
            server_context(SERVER, NOW, junk)


def test_a_pair_lies_in_its_directory_for_its_owner_alone(tmp_path: Path) -> None:
    place = tmp_path / "tls"
    write_pair(SERVER, place)
    new = self_signed(NOW)
    write_pair(new, place)
    assert sorted(path.name for path in place.iterdir()) == [CERTIFICATE_NAME, KEY_NAME]
    assert {stat.S_IMODE(path.stat().st_mode) for path in place.iterdir()} == {0o600}
    assert stat.S_IMODE(place.stat().st_mode) == 0o700
    assert check_pair(read_pair(place / CERTIFICATE_NAME, place / KEY_NAME), NOW) == new
    (place / KEY_NAME).chmod(0o640)
    with pytest.raises(BadSetting):
        read_pair(place / CERTIFICATE_NAME, place / KEY_NAME)
    with pytest.raises(BadSetting):
        read_pair(place / "none", place / KEY_NAME)


def test_a_pair_does_not_show_its_key() -> None:
    assert "PRIVATE" not in repr(SERVER)
