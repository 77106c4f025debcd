"""TLS of a running server: who is let in, and certificates, secrets and rules that change while it runs."""

from __future__ import annotations

import asyncio
import json
import ssl
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from cryptography import x509
from msgspec.structs import replace

from mqueue.assembly.reload import Reloader
from mqueue.assembly.server import Serving
from mqueue.config import Address, BadConfig, Config, Data, Jwt, Logging, NamespaceQuotas, Secret, Security, Server, Tls
from mqueue.server.security.certificates import Pair, self_signed, write_pair
from mqueue.server.security.tokens import issue
from tests.unit.test_security_tls import CA, NOW, SERVER, client_context, der

OPEN = Security()
OTHER = self_signed(NOW)
OLD, NEW = "the secret of yesterday, long enough", "the secret of tomorrow, long enough!"


def config(security: Security = OPEN, **more: object) -> Config:
    return Config(server=Server(http=Address("127.0.0.1", 0)), data=Data(memory=True), security=security, **more)


def files(place: Path, pair: Pair = SERVER, **more: object) -> Tls:
    write_pair(pair, place)
    return Tls(str(place / "tls.crt"), str(place / "tls.key"), **more)


class Line:
    """One connection, and what is asked over it."""

    def __init__(self, address: Address, context: ssl.SSLContext | None = None) -> None:
        self._address, self._context = address, context

    async def __aenter__(self) -> Line:
        name = "localhost" if self._context else None
        self._in, self._out = await asyncio.open_connection(
            "127.0.0.1", self._address.port, ssl=self._context, server_hostname=name
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        self._out.close()

    @property
    def certificate(self) -> bytes:
        return self._out.get_extra_info("ssl_object").getpeercert(True)

    async def status(self, path: str = "/v1/topics", headers: str = "") -> int:
        self._out.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n".encode())
        head = await self._in.readuntil(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        json.loads(await self._in.readexactly(length))
        return int(head.split()[1])


def serving(start: Config, story: Callable[[Serving, Address], Awaitable[None]]) -> None:
    async def run() -> None:
        server = Serving(start)
        address = await server.start()
        try:
            async with asyncio.timeout(120):
                await story(server, address)
        finally:
            await server.stop()

    asyncio.run(run())


def bearer(secret: str) -> str:
    now = int(time.time() * 1000)
    token = issue(secret, "HS256", subject="s", scopes=["admin:*"], issuer="mqueue", audience="mqueue", now=now)
    return f"Authorization: Bearer {token}\r\n"


def jwt(secret: str, previous: str | None = None) -> Jwt:
    return Jwt(Secret(secret), None if previous is None else Secret(previous), algorithms=("HS256",))


def test_only_those_come_in_who_have_a_certificate_of_the_authority(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_bytes(CA.pem)
    tls = files(tmp_path, client_ca_file=str(tmp_path / "ca.pem"))

    async def story(server: Serving, address: Address) -> None:
        known = client_context(SERVER.certificate, CA.issue(names=[x509.DNSName("a.example")]))
        async with Line(address, known) as line:
            assert await line.status() == 200
        for stranger in (client_context(SERVER.certificate), client_context(SERVER.certificate, OTHER)):
            with pytest.raises((ssl.SSLError, OSError, asyncio.IncompleteReadError)):
                async with Line(address, stranger) as line:
                    await line.status()
        with pytest.raises((OSError, asyncio.IncompleteReadError)):
            async with Line(address) as line:
                await line.status()
        with pytest.raises(ssl.SSLCertVerificationError):
            async with Line(address, client_context(CA.pem)):
                pass

    serving(config(Security(tls=tls)), story)


def test_a_certificate_counts_for_websockets_too(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_bytes(CA.pem)
    clients = {"dns:a.example": ("read:default",)}
    tls = files(tmp_path, client_ca_file=str(tmp_path / "ca.pem"), clients=clients)
    upgrade = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    request = (
        f"GET /v1/topics/orders/stream HTTP/1.1\r\nHost: localhost\r\n{upgrade}Sec-WebSocket-Key: {'A' * 22}==\r\n\r\n"
    )

    async def story(server: Serving, address: Address) -> None:
        for name, status in (("a.example", 101), ("b.example", 401)):
            context = client_context(SERVER.certificate, CA.issue(names=[x509.DNSName(name)]))
            async with Line(address, context) as line:
                line._out.write(request.encode())
                assert int((await line._in.readuntil(b"\r\n")).split()[1]) == status

    serving(config(Security(tls=tls)), story)


def test_a_new_certificate_is_for_new_connections_and_a_bad_one_for_nobody(tmp_path: Path) -> None:
    both = SERVER.certificate + OTHER.certificate
    start = config(Security(tls=files(tmp_path)))

    async def story(server: Serving, address: Address) -> None:
        reloader = Reloader(server, lambda: start)
        async with Line(address, client_context(both)) as old:
            assert old.certificate == der(SERVER)
            write_pair(Pair(OTHER.certificate, SERVER.key), tmp_path)
            await reloader.run_once()
            async with Line(address, client_context(both)) as line:
                assert line.certificate == der(SERVER)
            write_pair(OTHER, tmp_path)
            await reloader.run_once()
            async with Line(address, client_context(both)) as line:
                assert line.certificate == der(OTHER)
                assert await line.status() == 200
            assert await old.status() == 200

    serving(start, story)


def test_a_self_signed_certificate_stays_the_same_from_start_to_start(tmp_path: Path) -> None:
    start = replace(config(Security(tls=Tls(self_signed=True))), data=Data(dir=str(tmp_path / "data")))

    async def story(server: Serving, address: Address) -> None:
        certificate = (tmp_path / "data" / "tls" / "tls.crt").read_bytes()
        async with Line(address, client_context(certificate)) as line:
            seen.append(line.certificate)

    seen: list[bytes] = []
    serving(start, story)
    serving(start, story)
    assert seen[0] == seen[1]


def test_a_secret_is_changed_in_two_steps_without_anybody_being_turned_away() -> None:
    start = config(Security(auth=("jwt",), jwt=jwt(OLD)))

    async def story(server: Serving, address: Address) -> None:
        told = start
        reloader = Reloader(server, lambda: told)
        async with Line(address) as line:
            assert [await line.status(headers=bearer(each)) for each in (OLD, NEW)] == [200, 401]
            told = config(Security(auth=("jwt",), jwt=jwt(NEW, OLD)))
            await reloader.run_once()
            assert [await line.status(headers=bearer(each)) for each in (OLD, NEW)] == [200, 200]
            told = config(Security(auth=("jwt",), jwt=jwt(NEW)))
            await reloader.told()
            assert [await line.status(headers=bearer(each)) for each in (OLD, NEW)] == [401, 200]

    serving(start, story)


def test_a_bad_configuration_changes_nothing() -> None:
    start = config(Security(auth=("jwt",), jwt=jwt(OLD)))

    async def story(server: Serving, address: Address) -> None:
        def refuse() -> Config:
            raise BadConfig(["line 1: nonsense"])

        def fail() -> Config:
            raise RuntimeError("something went wrong")

        async with Line(address) as line:
            await Reloader(server, fail).told()
            await Reloader(server, fail).run_once()
            await Reloader(server, refuse).told()
            await Reloader(server, refuse).run_once()
            await Reloader(server, lambda: config(Security(auth=("jwt",), jwt=Jwt()))).told()
            assert server.config == start
            assert [await line.status(headers=bearer(each)) for each in (OLD, NEW)] == [200, 401]

    serving(start, story)


def test_people_are_waited_for_and_what_needs_a_start_is_named() -> None:
    start = config()

    async def story(server: Serving, address: Address) -> None:
        wanted = replace(
            start,
            quotas=NamespaceQuotas(None, {"default": 0}),
            logging=Logging(encoding="console"),
            server=Server(connections_max=7),
        )
        await Reloader(server, lambda: wanted).run_once()
        assert server.config == start
        assert server.reload(wanted) == ["server", "logging"]
        assert server.config.quotas == wanted.quotas
        assert server.config.server == start.server

    serving(start, story)


def test_the_door_cannot_be_taken_out_while_the_server_runs() -> None:
    start = config(Security(auth=("jwt",), jwt=jwt(OLD)))

    async def story(server: Serving, address: Address) -> None:
        assert server.reload(config(Security(jwt=jwt(OLD)))) == ["security"]
        async with Line(address) as line:
            assert await line.status() == 401

    serving(start, story)
