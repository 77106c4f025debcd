"""Telemetry of a server from its configuration. Only who has somewhere to send spans to loads what makes them.

Beside our own keys the variables of OpenTelemetry count: OTEL_SDK_DISABLED and OTEL_TRACES_EXPORTER=none turn it off,
OTEL_RESOURCE_ATTRIBUTES, OTEL_TRACES_SAMPLER(_ARG), OTEL_BSP_* and OTEL_EXPORTER_OTLP_* say the rest.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING
from urllib.parse import unquote

from msgspec import Struct

from mqueue.config import Config
from mqueue.config.tree import Telemetry
from mqueue.model.errors import BadSetting

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider

    from mqueue.server.exporting import Outbox, Pace
    from mqueue.server.telemetry import ServerSpans

_PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")


class Exporting(Struct, frozen=True):
    """Spans, and where they go."""

    provider: TracerProvider
    outbox: Outbox
    spans: ServerSpans

    def close(self) -> None:
        """Send what is left; takes two seconds at most."""
        self.provider.shutdown()


def exporting_of(config: Config, environ: Mapping[str, str] = os.environ) -> Exporting | None:
    """None: nobody wants to be told."""
    telemetry = config.telemetry
    off = environ.get("OTEL_SDK_DISABLED", "").lower() == "true" or environ.get("OTEL_TRACES_EXPORTER") == "none"
    if telemetry.endpoint is None or off:
        return None
    for name in _PROTOCOLS:
        if environ.get(name, "http/protobuf") not in ("", "http/protobuf"):
            raise BadSetting(f"{name} is {environ[name]!r:.40}; spans are sent as http/protobuf only")
    try:
        return _exporting(config, telemetry.endpoint, environ)
    except ModuleNotFoundError as error:
        raise BadSetting(f"telemetry.endpoint needs {error.name}: pip install 'mqueue[telemetry]'") from None


def _exporting(config: Config, endpoint: str, environ: Mapping[str, str]) -> Exporting:
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.sampling import DEFAULT_ON

    from mqueue.server.exporting import Outbox
    from mqueue.server.telemetry import ServerSpans

    for name in ("exporter", "sdk"):  # what they have to say of a collector that is away the outbox says once
        logging.getLogger(f"opentelemetry.{name}").setLevel(logging.CRITICAL)
    ratio = config.telemetry.sample_ratio
    about = {
        "service.name": config.telemetry.service_name,
        "service.instance.id": config.data.node or os.uname().nodename,
    }
    provider = TracerProvider(
        sampler=None if ratio is None else DEFAULT_ON,  # what is not told does not get that far
        resource=Resource.create(about),
        shutdown_on_exit=False,
    )
    exporter = OTLPSpanExporter(endpoint, headers=dict(header_pairs(config.telemetry)) or None)
    outbox = Outbox(exporter, endpoint, _pace(environ))
    provider.add_span_processor(outbox)
    return Exporting(provider, outbox, ServerSpans(provider, ratio))


def header_pairs(telemetry: Telemetry) -> list[tuple[str, str]]:
    """The headers that a collector wants, values as they are meant: in the text they may be escaped."""
    if telemetry.headers is None:
        return []
    pairs = (pair.partition("=") for pair in telemetry.headers.reveal().split(","))
    return [(name.strip().lower(), unquote(value.strip())) for name, _, value in pairs]


def _pace(environ: Mapping[str, str]) -> Pace:
    from mqueue.server.exporting import Pace

    pace = Pace()
    waiting = _count(environ, "OTEL_BSP_MAX_QUEUE_SIZE", pace.waiting_max)
    batch = _count(environ, "OTEL_BSP_MAX_EXPORT_BATCH_SIZE", pace.batch_max)
    delay = _count(environ, "OTEL_BSP_SCHEDULE_DELAY", round(pace.delay_seconds * 1000))
    return Pace(waiting, min(batch, waiting), delay / 1000)


def _count(environ: Mapping[str, str], name: str, default: int) -> int:
    text = environ.get(name) or str(default)
    if not text.isascii() or not text.isdecimal() or not 0 < int(text) <= 1_000_000:
        raise BadSetting(f"{name} is {text!r:.40}; it takes a whole number from 1 to 1000000")
    return int(text)
