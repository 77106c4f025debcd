"""Who is let in over AMQP, and what they may do: passwords are keys or tokens, names of queues are topics."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pika
import pytest
from cryptography import x509
from msgspec.structs import replace
from pamqp import commands
from pika.credentials import ExternalCredentials
from pika.exceptions import ChannelClosedByBroker, ProbableAccessDeniedError, ProbableAuthenticationError

import mqueue
from mqueue.config import Config, Jwt, Secret, Security, Tls
from mqueue.server.security.certificates import write_pair
from mqueue.server.security.tokens import issue
from mqueue.testing import ManualClock
from mqueue.testing.server import RunningServer
from tests.integration.amqp_line import GREETING, AmqpLine, raw
from tests.integration.rabbits import PERSISTENT, config, connected, parameters, port_of, take
from tests.unit.test_security_tls import CA, SERVER, client_context

SECRET = "a secret of a test, long enough for HS256"


def secured(tls: Tls | None = None) -> Config:
    security = Security(auth=("jwt",), jwt=Jwt(secret=Secret(SECRET), algorithms=("HS256",)), tls=tls or Tls())
    return replace(config(), security=security)


def token(*scopes: str, now: int | None = None) -> str:
    at = int(time.time() * 1000) if now is None else now
    return issue(SECRET, "HS256", subject="svc", scopes=scopes, issuer="mqueue", audience="mqueue", now=at)


def login(*scopes: str) -> dict[str, Any]:
    return {"credentials": pika.PlainCredentials("svc", token(*scopes))}


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    with RunningServer(secured()) as server:
        yield server


@pytest.fixture(scope="module")
def port(server: RunningServer) -> int:
    return port_of(server)


def test_no_proof_no_entry(port: int) -> None:
    for password in ("guest", "", "mq_nonsense", token("read:*") + "x"):
        with pytest.raises(ProbableAuthenticationError, match="403"):
            pika.BlockingConnection(parameters(port, credentials=pika.PlainCredentials("svc", password)))


def test_who_cannot_be_told_is_cut_off(port: int) -> None:
    with AmqpLine(port) as line:
        line.send(GREETING)
        line.read()
        assert line.ask(commands.Connection.StartOk({}, "PLAIN", "\0svc\0bad", "en_US"), 0) is None


def test_other_mechanisms(port: int) -> None:
    proof = token("read:*").encode()
    table = b"\x05LOGINS\x00\x00\x00\x03svc\x08PASSWORDS" + len(proof).to_bytes(4, "big") + proof
    answer = b"\x00\x0a\x00\x0b" + bytes(4) + b"\x08AMQPLAIN" + len(table).to_bytes(4, "big") + table + b"\x05en_US"
    with AmqpLine(port) as line:
        line.send(GREETING)
        assert line.read().mechanisms == "PLAIN AMQPLAIN"
        line.send(raw(1, 0, answer))
        assert isinstance(line.read(), commands.Connection.Tune)
    with AmqpLine(port) as line:
        line.send(GREETING)
        line.read()
        assert line.ask(commands.Connection.StartOk({}, "CRAM-MD5", "x"), 0).reply_code == 530


def test_rights_are_those_of_topics(port: int) -> None:
    with connected(port, "team", **login("write:team/orders.*", "read:team/orders.new")) as connection:
        connection.channel().queue_declare("orders.new")
        connection.channel().basic_publish("", "orders.new", b"1", PERSISTENT)
        assert take(connection.channel(), "orders.new", 1)[0][2] == b"1"

        def refused(call: Callable[[Any], Any]) -> None:
            channel = connection.channel()
            channel.confirm_delivery()
            with pytest.raises(ChannelClosedByBroker, match=r"^\(403, "):
                call(channel)

        connection.channel().queue_declare("orders.old")
        refused(lambda c: c.basic_get("orders.old"))
        refused(lambda c: c.basic_consume("orders.old", print))
        refused(lambda c: c.queue_declare("others"))
        refused(lambda c: c.queue_declare("others", passive=True))
        refused(lambda c: c.basic_publish("", "others", b""))
        refused(lambda c: c.basic_publish("amq.fanout", "", b""))
        refused(lambda c: c.queue_purge("orders.new"))
        refused(lambda c: c.queue_delete("orders.new"))
        refused(lambda c: c.exchange_declare("others"))
        refused(lambda c: c.queue_bind("orders.new", "amq.fanout"))
        refused(lambda c: c.queue_declare("orders.x", arguments={"x-dead-letter-exchange": "others"}))
        dead = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "others"}
        refused(lambda c: c.queue_declare("orders.x", arguments=dead))
        own = connection.channel()
        own.queue_declare("orders.mine", exclusive=True)
        assert own.queue_purge("orders.mine").method.message_count == 0
        own.queue_delete("orders.mine")


def test_rights_of_topics_are_not_widened_by_exchanges_and_queues(server: RunningServer, port: int) -> None:
    """Who may only read a topic cannot write to it, change it or make it go; who may only write does not read."""
    with connected(port, "shop", **login("*:shop")) as owner:
        channel = owner.channel()
        channel.exchange_declare("events", "fanout")
        channel.queue_declare("orders")
    native = mqueue.Client(server.url, namespace="shop", token=token("*:shop"))
    native.publish("ledger", b"1")
    rights = ("read:shop/orders", "read:shop/ledger", "write:shop/events", "*:shop/my.*")
    with native, connected(port, "shop", **login(*rights)) as connection:
        connection.channel().exchange_declare("my.exchange", "fanout")
        connection.channel().queue_declare("my.queue")
        connection.channel().queue_bind("my.queue", "my.exchange")

        def refused(call: Callable[[Any], Any]) -> None:
            with pytest.raises(ChannelClosedByBroker, match=r"^\(403, "):
                call(connection.channel())

        refused(lambda c: c.queue_bind("orders", "my.exchange"))
        refused(lambda c: c.queue_bind("my.queue", "events"))
        refused(lambda c: c.exchange_bind("my.exchange", "events"))
        refused(lambda c: c.exchange_declare("my.other", arguments={"alternate-exchange": "others"}))
        refused(lambda c: c.exchange_declare("my.other", arguments={"alternate-exchange": ""}))
        refused(lambda c: c.queue_declare("my.other", arguments={"x-dead-letter-exchange": ""}))
        for arguments in ({"x-max-length": 1}, {"x-expires": 1}, {"x-message-ttl": 1}):
            refused(lambda c, given=arguments: c.queue_declare("ledger", arguments=given))
        refused(lambda c: c.queue_declare("ledger", auto_delete=True))
        refused(lambda c: c.queue_declare("ledger", exclusive=True))
        connection.channel().queue_declare("ledger")
        assert connection.channel().basic_get("ledger")[2] == b"1"


def test_another_namespace_is_not_entered(port: int) -> None:
    with pytest.raises(ProbableAccessDeniedError, match="530"):
        pika.BlockingConnection(parameters(port, "other", **login("*:team")))
    with connected(port, "other", **login("admin:*")) as connection:
        connection.channel().queue_delete("nothing")


def opened(port: int, proof: str) -> AmqpLine:
    line = AmqpLine(port)
    line.send(GREETING)
    line.read()
    assert isinstance(
        line.ask(commands.Connection.StartOk({}, "PLAIN", f"\0s\0{proof}", "en_US"), 0), commands.Connection.Tune
    )
    line.say(commands.Connection.TuneOk(0, 0, 0), 0)
    assert isinstance(line.ask(commands.Connection.Open(), 0), commands.Connection.OpenOk)
    return line


def test_a_proof_can_be_renewed() -> None:
    with RunningServer(secured()) as server, opened(port_of(server), token("*:*")) as line:
        assert isinstance(
            line.ask(commands.Connection.UpdateSecret(token("*:*"), "it ends"), 0), commands.Connection.UpdateSecretOk
        )
        assert line.ask(commands.Connection.UpdateSecret("bad", "it ends"), 0).reply_code == 403


@pytest.mark.long
def test_a_proof_that_ends_ends_the_connection() -> None:
    clock = ManualClock()
    with RunningServer(secured(), clock) as server, opened(port_of(server), token("*:*", now=clock.now())) as line:
        clock.advance("2h")
        assert line.read().reply_code == 320


def test_tls(tmp_path: Path) -> None:
    write_pair(SERVER, tmp_path)
    tls = Tls(str(tmp_path / "tls.crt"), str(tmp_path / "tls.key"))
    with RunningServer(secured(tls)) as server:
        options = pika.SSLOptions(client_context(SERVER.certificate), "localhost")
        with connected(port_of(server), ssl_options=options, **login("*:*")) as connection:
            channel = connection.channel()
            channel.queue_declare("orders")
            channel.basic_publish("", "orders", b"x" * 300_000)
            assert take(channel, "orders", 1)[0][2] == b"x" * 300_000


def test_a_certificate_is_a_proof(tmp_path: Path) -> None:
    """EXTERNAL: who has shown a certificate needs no password, and may do what is granted to its name."""
    write_pair(SERVER, tmp_path)
    (tmp_path / "ca.pem").write_bytes(CA.pem)
    clients = {"dns:worker": ("*:default/orders",)}
    tls = Tls(str(tmp_path / "tls.crt"), str(tmp_path / "tls.key"), client_ca_file=str(tmp_path / "ca.pem"))
    with RunningServer(secured(replace(tls, clients=clients))) as server:
        shown = client_context(SERVER.certificate, CA.issue(names=[x509.DNSName("worker")]))
        external = {"ssl_options": pika.SSLOptions(shown, "localhost"), "credentials": ExternalCredentials()}
        with connected(port_of(server), **external) as connection:
            connection.channel().queue_declare("orders")
            with pytest.raises(ChannelClosedByBroker, match=r"^\(403, "):
                connection.channel().queue_declare("others")
        stranger = client_context(SERVER.certificate, CA.issue(names=[x509.DNSName("stranger")]))
        options = pika.SSLOptions(stranger, "localhost")
        with pytest.raises(ProbableAuthenticationError, match="403"):
            pika.BlockingConnection(parameters(port_of(server), ssl_options=options, credentials=ExternalCredentials()))
