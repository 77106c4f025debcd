"""A collector of spans: takes OTLP over HTTP, as protobuf, and keeps what it was told."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

PATIENCE_SECONDS = 120


class Told(NamedTuple):
    """A span, as a test reads it."""

    name: str
    kind: int
    trace: str
    span: str
    parent: str
    links: list[tuple[str, str]]
    attributes: dict[str, Any]
    failed: bool
    service: str


class Collector:
    """`status`: what it answers with."""

    def __init__(self) -> None:
        self.status = 200
        self.requests: list[tuple[str, dict[str, str]]] = []
        self._spans: list[Told] = []
        self._changed = threading.Condition()
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                if self.headers.get("content-encoding") == "gzip":
                    body = gzip.decompress(body)
                collector._take(self.path, {name.lower(): value for name, value in self.headers.items()}, body)
                self.send_response(collector.status)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Collector:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _take(self, path: str, headers: dict[str, str], body: bytes) -> None:
        request = ExportTraceServiceRequest.FromString(body)
        with self._changed:
            self.requests.append((path, headers))
            if self.status == 200:
                for told in request.resource_spans:
                    service = _values(told.resource.attributes).get("service.name", "")
                    self._spans += [_told(span, service) for scope in told.scope_spans for span in scope.spans]
            self._changed.notify_all()

    @property
    def spans(self) -> list[Told]:
        with self._changed:
            return list(self._spans)

    def wait(self, enough: Callable[[], bool]) -> None:
        """Until it has heard enough."""
        with self._changed:
            assert self._changed.wait_for(enough, PATIENCE_SECONDS), [span.name for span in self._spans]

    def named(self, *names: str) -> list[Told]:
        """The first span of each of these names, once they are there."""
        self.wait(lambda: set(names) <= {span.name for span in self._spans})
        return [next(span for span in self.spans if span.name == name) for name in names]


def _told(span: Any, service: str) -> Told:
    return Told(
        span.name,
        span.kind,
        span.trace_id.hex(),
        span.span_id.hex(),
        span.parent_span_id.hex(),
        [(link.trace_id.hex(), link.span_id.hex()) for link in span.links],
        _values(span.attributes),
        span.status.code == 2,
        service,
    )


def _values(attributes: Any) -> dict[str, Any]:
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in attributes}
