"""What was decided, about whom and why: one JSON line each. And the filter that keeps secrets out of every log.

Writes nothing by itself: it is given something that takes lines. Never holds a token, a key or a payload; whatever
text comes from outside is redacted and cut, because a caller may put a secret anywhere, also into a topic's name.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Iterable
from typing import Literal

from msgspec import Struct, structs

Outcome = Literal["allowed", "refused", "failed", "changed"]

MASK = "[redacted]"
TEXT_LENGTH_MAX = 256
CANARY_LENGTH_MIN = 8
# Every pattern is linear: no repetition inside another, and none that two neighbours could share.
_SHAPES: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----[^-]*(?:-----END [A-Z ]*PRIVATE KEY-----)?"), MASK),
    (re.compile(r"\beyJ[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]*){0,4}"), MASK),
    (re.compile(r"mq_[A-Za-z0-9]{16,}"), MASK),
    (re.compile(r"(?i)\b(bearer|basic)([ :=]+)[^\s\"',;]+"), rf"\1\2{MASK}"),
    (re.compile(r"(://[^\s/:@]*:)[^\s/@]+@"), rf"\1{MASK}@"),
    (
        re.compile(r"(?i)(password|passwd|secret|token|pepper|api[_-]?key)([\"']?[=:] ?[\"']?)[^\s\"'&,;}]+"),
        rf"\1\2{MASK}",
    ),
)


class Decision(Struct, frozen=True):
    """`at` in milliseconds; `why` in words of ours (a reason of `Rejected`, a verb), not in the caller's."""

    at: int
    who: str
    what: str
    outcome: Outcome
    why: str = ""
    namespace: str = ""
    topic: str = ""
    peer: str = ""
    via: str = ""


class Redactor:
    """Masks what has the shape of a secret, and the very secrets it was told of, whatever their shape."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        # A short one would blot out ordinary words and, by the holes, tell what it is.
        known = sorted({each for each in secrets if len(each) >= CANARY_LENGTH_MIN}, key=len, reverse=True)
        self._known = re.compile("|".join(map(re.escape, known))) if known else None

    def __call__(self, text: str) -> str:
        if self._known is not None:
            text = self._known.sub(MASK, text)
        for shape, mask in _SHAPES:
            text = shape.sub(mask, text)
        return text


class Audit:
    def __init__(self, write: Callable[[str], object], redact: Redactor | None = None) -> None:
        self._write = write
        self._redact = redact or Redactor()

    def record(self, decision: Decision) -> None:
        self._write(self.line(decision))

    def line(self, decision: Decision) -> str:
        """ASCII, so that no line end or direction mark from outside can make one line look like two."""
        fields = structs.asdict(decision)
        return json.dumps({name: self._shown(value) for name, value in fields.items() if value != ""})

    def _shown(self, value: object) -> object:
        """Redacted before it is cut: half a secret has no shape any more."""
        return self._redact(value)[:TEXT_LENGTH_MAX] if isinstance(value, str) else value


class RedactingFilter(logging.Filter):
    """For the handlers of every log: message, arguments, traceback and stack."""

    def __init__(self, redact: Redactor) -> None:
        super().__init__()
        self._redact = redact

    def filter(self, record: logging.LogRecord) -> bool:
        record.msg, record.args = self._redact(_message(record)), ()
        if record.exc_info and not record.exc_text:
            record.exc_text = logging.Formatter().formatException(record.exc_info)
        if record.exc_text:
            record.exc_text = self._redact(record.exc_text)
            record.exc_info = None  # a formatter that renders by itself would show it as it was
        if record.stack_info:
            record.stack_info = self._redact(record.stack_info)
        return True


def _message(record: logging.LogRecord) -> str:
    """A call that does not fit its own format must not put its arguments on stderr unredacted."""
    try:
        return record.getMessage()
    except (TypeError, ValueError, KeyError):
        return f"{record.msg} {record.args!r}"
