"""Certificates as values: a pair of certificate and key, made, checked, kept, and read for who a client is.

Knows no sockets and no contexts (see `tls`). `now` is in milliseconds and handed in; keys come from the operating
system's randomness, inside the library, which gives no other way.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from msgspec import Struct

from mqueue.model.errors import BadSetting
from mqueue.server.security.principal import Principal, Rejected, is_subject, parse_grants

CERTIFICATE_NAME = "tls.crt"
KEY_NAME = "tls.key"
SELF_SIGNED_DAYS = 397
_CLOCK_SLACK = timedelta(hours=1)


class Pair(Struct, frozen=True):
    """PEM texts: the chain with our certificate first, and its private key."""

    certificate: bytes
    key: bytes

    def __repr__(self) -> str:
        return f"Pair({len(self.certificate)} bytes)"


def check_pair(pair: Pair, now: int) -> Pair:
    """The pair as it came, or BadSetting: they do not belong together, or it is not its time."""
    try:
        certificate = x509.load_pem_x509_certificates(pair.certificate)[0]
        key = load_pem_private_key(pair.key, password=None)
    except (ValueError, TypeError, IndexError, UnsupportedAlgorithm):
        raise BadSetting("the TLS certificate or its key is not PEM that can be read without a password") from None
    form = Encoding.DER, PublicFormat.SubjectPublicKeyInfo
    if certificate.public_key().public_bytes(*form) != key.public_key().public_bytes(*form):
        raise BadSetting("the TLS key does not belong to the certificate")
    if not certificate.not_valid_before_utc <= _time(now) < certificate.not_valid_after_utc:
        first, last = certificate.not_valid_before_utc, certificate.not_valid_after_utc
        raise BadSetting(f"the TLS certificate is good from {first:%F %T} to {last:%F %T}, and now is not in between")
    return pair


def self_signed(
    now: int,
    names: Sequence[str] = ("localhost",),
    addresses: Sequence[str] = ("127.0.0.1", "::1"),
    days: int = SELF_SIGNED_DAYS,
) -> Pair:
    """For this machine and for tests. It signs nothing but itself, so whoever trusts it trusts one server only."""
    key = generate_private_key(SECP256R1())
    alternatives = [*map(x509.DNSName, names), *(x509.IPAddress(ip_address(each)) for each in addresses)]
    name = x509.Name([x509.NameAttribute(NameOID.ORGANIZATION_NAME, "mqueue, self-signed")])
    identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    usages = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    builder = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(_time(now) - _CLOCK_SLACK)
        .not_valid_after(_time(now) + timedelta(days=days))
        .add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_SIGNS_ONLY_ITS_HANDSHAKES, critical=True)
        .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        .add_extension(identifier, critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier), critical=False)
    )
    secret = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return Pair(builder.sign(key, SHA256()).public_bytes(Encoding.PEM), secret)


def write_pair(pair: Pair, directory: Path) -> None:
    """Each file is replaced as a whole. Between the two they do not match; whoever reads then notices, and waits."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    for name, data in ((KEY_NAME, pair.key), (CERTIFICATE_NAME, pair.certificate)):
        temporary = directory / f"{name}.new"
        temporary.unlink(missing_ok=True)
        file = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with os.fdopen(file, "wb") as out:
            out.write(data)
            out.flush()
            os.fsync(file)
        temporary.rename(directory / name)
    _sync_names(directory)


def read_pair(certificate: Path, key: Path) -> Pair:
    """BadSetting where others may read the key: then it is no secret any more."""
    try:
        if key.stat().st_mode & 0o077:
            raise BadSetting(f"the TLS key {key.name} can be read by others: give it mode 0600")
        return Pair(certificate.read_bytes(), key.read_bytes())
    except OSError as error:
        raise BadSetting(f"the TLS pair cannot be read: {error.strerror}") from error


def subjects_of(der: bytes) -> tuple[str, ...]:
    """Every name a client's certificate has, as `uri:…`, `dns:…`, `email:…`. The CN is ignored: it is free text."""
    try:
        extensions = x509.load_der_x509_certificate(der).extensions
        names = extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return ()
    except (ValueError, x509.DuplicateExtension, x509.UnsupportedGeneralNameType):
        raise Rejected("certificate cannot be read") from None
    return (
        *(f"uri:{each}" for each in names.get_values_for_type(x509.UniformResourceIdentifier)),
        *(f"dns:{each.lower()}" for each in names.get_values_for_type(x509.DNSName)),
        *(f"email:{each}" for each in names.get_values_for_type(x509.RFC822Name)),
    )


def principal_of(der: bytes, grants: Mapping[str, Sequence[str]]) -> Principal:
    """Who carries this certificate, of those that have grants. Its chain and its dates were checked by the handshake.

    Names are compared as they stand: `dns:*.example` in a certificate is nobody. Two known names are refused, or
    whoever makes the certificate would choose whose rights it has.
    """
    known = [subject for subject in subjects_of(der) if is_subject(subject) and subject in grants]
    if len(known) != 1:
        raise Rejected("certificate with two known names" if known else "certificate with no known name")
    return Principal(known[0], parse_grants(grants[known[0]]), via="certificate")


_SIGNS_ONLY_ITS_HANDSHAKES = x509.KeyUsage(
    digital_signature=True,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    key_cert_sign=False,
    crl_sign=False,
    encipher_only=False,
    decipher_only=False,
)


def _sync_names(directory: Path) -> None:
    file = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def _time(now: int) -> datetime:
    return datetime.fromtimestamp(now / 1000, UTC).replace(microsecond=0)
