"""What the server writes down: one line per record, JSON for machines or text for people, on stderr.

Fields are handed along as `extra={"fields": {...}}`. Whatever text there is goes through the redactor before it is
written; payloads are never handed here. Belongs to one process: the root of our loggers has one handler at a time.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Literal, TextIO

import msgspec

from mqueue.server.security.audit import RedactingFilter, Redactor

ROOT = "mqueue"
AUDIT = "mqueue.audit"
LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warn": logging.WARNING, "error": logging.ERROR}
TEXT_LENGTH_MAX = 2_000
"""Of one field or message; a traceback may be ten times as long."""

_ENCODER = msgspec.json.Encoder(enc_hook=repr)


class Lines(logging.Formatter):
    """A record as one line of JSON."""

    def __init__(self, redact: Redactor) -> None:
        super().__init__()
        self._redact = redact

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {"time": _time(record), "level": record.levelname.lower(), "logger": record.name}
        if record.name == AUDIT:
            return _ENCODER.encode(line | _decision(record.getMessage())).decode()
        line["message"] = record.getMessage()[:TEXT_LENGTH_MAX]
        for name, value in fields_of(record).items():
            line.setdefault(name, self._shown(value))
        if record.exc_text:
            line["traceback"] = record.exc_text[: 10 * TEXT_LENGTH_MAX]
        return _ENCODER.encode(line).decode()

    def _shown(self, value: object) -> object:
        return value if isinstance(value, int | float | None) else self._redact(str(value))[:TEXT_LENGTH_MAX]


class Console(logging.Formatter):
    """The same for people. Line ends inside a message are shown as such: one record must not look like two."""

    def __init__(self, redact: Redactor) -> None:
        super().__init__()
        self._redact = redact

    def format(self, record: logging.LogRecord) -> str:
        fields = "".join(f" {name}={value}" for name, value in fields_of(record).items())
        text = _one_line(record.getMessage() + self._redact(fields))[:TEXT_LENGTH_MAX]
        trace = f"\n{record.exc_text}" if record.exc_text else ""
        return f"{_time(record)} {record.levelname.lower():7} {record.name}: {text}{trace}"


class LogHandler(logging.StreamHandler[TextIO]):
    """Ours, so that it is found again when it is exchanged."""


def set_up(
    level: str, encoding: Literal["json", "console"] | str, secrets: Iterable[str] = (), stream: TextIO | None = None
) -> LogHandler:
    """Write what our loggers say to a stream (stderr), in place of what was set up before."""
    redact = Redactor(secrets)
    handler = LogHandler(stream or sys.stderr)
    handler.addFilter(RedactingFilter(redact))
    handler.setFormatter(Console(redact) if encoding == "console" else Lines(redact))
    take_down()
    root = logging.getLogger(ROOT)
    root.addHandler(handler)
    root.setLevel(LEVELS[level])
    root.propagate = False
    logging.getLogger(AUDIT).setLevel(logging.INFO)  # whatever the level is: decisions are no chatter
    return handler


def take_down() -> None:
    """Our loggers are again as Python makes them."""
    root = logging.getLogger(ROOT)
    for handler in _ours():
        root.removeHandler(handler)
        handler.close()
    root.propagate = True
    for logger in (root, logging.getLogger(AUDIT)):
        logger.setLevel(logging.NOTSET)


def change(level: str, encoding: str, secrets: Iterable[str]) -> None:
    """The same stream, told otherwise; nothing where nothing was set up."""
    for handler in _ours():
        set_up(level, encoding, secrets, handler.stream)


def write_audit(line: str) -> None:
    """One decision, as `Audit` wrote it."""
    logging.getLogger(AUDIT).info("%s", line)


def fields_of(record: logging.LogRecord) -> Mapping[str, Any]:
    found = getattr(record, "fields", None)
    return found if isinstance(found, Mapping) else {}


def _ours() -> list[LogHandler]:
    return [each for each in logging.getLogger(ROOT).handlers if isinstance(each, LogHandler)]


def _decision(line: str) -> dict[str, Any]:
    """What `Audit` wrote, as fields again; a decision whose text was masked until it is no JSON any more, as text."""
    try:
        return msgspec.json.decode(line, type=dict[str, Any])
    except msgspec.DecodeError:
        return {"message": line}


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _one_line(text: str) -> str:
    return text.replace("\r", "\\r").replace("\n", "\\n")
