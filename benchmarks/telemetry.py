"""What it costs to be told: our own trace, and spans of OpenTelemetry, each against the same without.

Cases take turns round by round. What counts is processor time, and of each case its best round: who else uses the
machine, and how long a disk takes, is the same with and without. The trace is that of a broker in memory, where nothing
hides its cost. Spans are those of a server on disk in a process of its own, which sends them to a collector in another,
and of a client.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from time import process_time

import uvloop
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import ParentBasedTraceIdRatio

from benchmarks.disk import scratch
from benchmarks.harness import Profile, Race, Result, Sample, race
from benchmarks.http import TEXTS, again, asking, published
from benchmarks.http_load import Server
from benchmarks.memory_broker import BATCH, PAYLOADS, TOPIC, publish_singles, receive_singles
from mqueue import Broker, Client

MESSAGES = 100
MORE = 5
"""So many times more rounds, where the difference is next to nothing."""
CONNECTIONS = 4
TRACE_MOST, DELIVERY_MOST, SAMPLED_MOST = 1.03, 1.05, 1.1
_COLLECTOR = """
import http.server
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()
    def log_message(self, *_): pass
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print(server.server_port, flush=True)
server.serve_forever()
"""


class Traced:
    """publish one by one, publish_many, receive + ack: of a topic that is traced, or not."""

    def __init__(self, profile: Profile, traced: bool) -> None:
        self._broker = Broker()
        self._broker.configure(TOPIC, trace=traced)
        self._singles, self._batches = profile.singles, 5 * profile.batches

    def round(self) -> dict[str, Sample]:
        begun = process_time()
        publish_singles(self._broker, self._singles, False)
        published = process_time()
        receive_singles(self._broker, self._singles)
        received = process_time()
        for _ in range(self._batches):
            self._broker.publish_many(TOPIC, PAYLOADS)
        done = process_time()
        for _ in range(self._batches):
            self._broker.receive_arrow(TOPIC, BATCH).ack()
        return {
            "publish": (self._singles, published - begun),
            "publish_many": (self._batches * BATCH, done - received),
            "receive+ack": (self._singles, received - published),
        }


def _cost(found: Race, label: str, told: str, untold: str, name: str, most: float | None = None) -> Result:
    """How many times more processor time a message takes, as a row."""
    dear, cheap = (1e6 / max(found.rates[case, name].raw) for case in (told, untold))
    note = f"{dear:.2f} µs a message against {cheap:.2f}"
    return Result(label, dear / cheap, "×", "<=" if most else "", most, note=note)


def trace(profile: Profile) -> Iterator[Result]:
    """Our own trace, against `trace=False`."""
    found = race({"traced": Traced(profile, True), "not": Traced(profile, False)}, MORE * profile.rounds)
    yield _cost(found, "publish, traced", "traced", "not", "publish", TRACE_MOST)
    yield _cost(found, "publish_many, 1000 at a time, traced", "traced", "not", "publish_many", TRACE_MOST)
    yield _cost(found, "receive + ack, traced", "traced", "not", "receive+ack", DELIVERY_MOST)


class Serving:
    """Publishes of 100 messages to a server."""

    def __init__(self, profile: Profile, server: Server) -> None:
        self._server = server
        self._turn = asking(published(MESSAGES))
        self._seconds = profile.pause / 2

    def round(self) -> dict[str, Sample]:
        before, _ = self._server.usage()
        turns, _ = uvloop.run(again(self._server.port, self._turn, CONNECTIONS, self._seconds))
        return {"publish": (turns * MESSAGES, self._server.usage()[0] - before)}


def spans(profile: Profile) -> Iterator[Result]:
    """A server that tells of none, one in a hundred and all of its publishes."""
    with ExitStack() as stack:
        endpoint = f"http://127.0.0.1:{stack.enter_context(_collector())}/v1/traces"
        cases = {}
        for name, ratio in (("off", None), ("1 %", 0.01), ("all", 1.0)):
            directory = stack.enter_context(scratch())
            telemetry = None if ratio is None else (endpoint, ratio)
            cases[name] = Serving(profile, stack.enter_context(Server(directory / "data", telemetry=telemetry)))
        found = race(cases, profile.rounds)
    yield _cost(found, "server, publish 100, 1 % sampled", "1 %", "off", "publish", SAMPLED_MOST)
    yield _cost(found, "server, publish 100, all sampled", "all", "off", "publish")


class Calling:
    """Publishes of 100 messages by a client."""

    def __init__(self, profile: Profile, server: Server, ratio: float | None) -> None:
        self._client = Client(f"http://127.0.0.1:{server.port}", telemetry=False if ratio is None else _provider(ratio))
        self._calls = max(50, profile.singles // MESSAGES)

    def round(self) -> dict[str, Sample]:
        begun = process_time()
        for _ in range(self._calls):
            self._client.publish_many(TOPIC, TEXTS[:MESSAGES])
        return {"publish": (self._calls * MESSAGES, process_time() - begun)}


def clients(profile: Profile) -> Iterator[Result]:
    """A client that tells of none, one in a hundred and all of its publishes."""
    with scratch() as directory, Server(directory / "data") as server:
        cases = {name: Calling(profile, server, ratio) for name, ratio in (("off", None), ("1 %", 0.01), ("all", 1.0))}
        found = race(cases, profile.rounds)
        for case in cases.values():
            case._client.close()
    yield _cost(found, "client, publish 100, 1 % sampled", "1 %", "off", "publish")
    yield _cost(found, "client, publish 100, all sampled", "all", "off", "publish")


class _Nowhere(SpanExporter):
    def export(self, spans: object) -> SpanExportResult:
        return SpanExportResult.SUCCESS


def _provider(ratio: float) -> TracerProvider:
    provider = TracerProvider(ParentBasedTraceIdRatio(ratio), shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(_Nowhere()))
    return provider


@contextmanager
def _collector() -> Iterator[int]:
    """The port of one that takes everything, in a process of its own."""
    child = subprocess.Popen([sys.executable, "-c", _COLLECTOR], stdout=subprocess.PIPE, text=True)
    try:
        assert child.stdout is not None
        yield int(child.stdout.readline())
    finally:
        child.kill()
        child.communicate()
