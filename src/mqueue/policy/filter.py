"""The little language that picks dead messages for a redrive.

    filter     = [ condition { "and" condition } ]      empty: everything
    condition  = text ( "=" | "!=" | "~" ) value
               | number ( "=" | "!=" | "<" | "<=" | ">" | ">=" ) value
               | number "in" value                          any of several: "in 17,18,20"
    text       = reason | error | fingerprint | group | consumer | topic | key | payload | headers.<name>
    number     = id | attempts | priority
    value      = a bare word, or "quoted" or 'quoted' with \\ before a quote or a backslash

`reason = max_retries and error ~ "timed out" and attempts >= 3 and headers.region = eu`

`~` means contains. Case counts. A key or header that is not there equals nothing and contains nothing, so `!=` holds.
All errors that say the same have one fingerprint (`mqueue.policy.fingerprint`). A priority may be given by the name of
its lane. Does not know where the records come from.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import NamedTuple, NoReturn, Protocol, TypeAlias, overload

from mqueue.model.errors import BadPriority, Refused
from mqueue.model.priority import priority
from mqueue.policy.fingerprint import fingerprint

FILTER_LENGTH_MAX = 4096


class Record(Protocol):
    """What a filter can see of a dead message."""

    @property
    def id(self) -> int: ...
    @property
    def reason(self) -> str | None: ...
    @property
    def error(self) -> str | None: ...
    @property
    def group(self) -> str | None: ...
    @property
    def attempts(self) -> int: ...
    @property
    def consumer(self) -> str | None: ...
    @property
    def key(self) -> bytes | None: ...
    @property
    def priority(self) -> int: ...
    @property
    def topic(self) -> str: ...
    @property
    def payload(self) -> bytes: ...
    @property
    def headers(self) -> Mapping[str, str | bytes]: ...


Filter: TypeAlias = Callable[[Record], bool]

_TEXTS: dict[str, Callable[[Record], str | bytes | None]] = {
    "reason": lambda record: record.reason,
    "error": lambda record: record.error,
    "fingerprint": lambda record: fingerprint(record.reason or "", record.error or ""),
    "group": lambda record: record.group,
    "consumer": lambda record: record.consumer,
    "topic": lambda record: record.topic,
    "key": lambda record: record.key,
    "payload": lambda record: record.payload,
}
_NUMBERS: dict[str, Callable[[Record], int]] = {
    "id": lambda record: record.id,
    "attempts": lambda record: record.attempts,
    "priority": lambda record: record.priority,
}
_HEADER = "headers."
_FIELDS = ", ".join([*_TEXTS, *_NUMBERS, "headers.<name>"])

_COMPARE: dict[str, Callable[[int, int], bool]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_ANY_OF = "in"
_MATCH: dict[str, Callable[[bytes | None, bytes], bool]] = {
    "=": lambda text, wanted: text == wanted,
    "!=": lambda text, wanted: text != wanted,
    "~": lambda text, wanted: text is not None and wanted in text,
}

_TOKEN = re.compile(
    r"""\s* (?:
        (?P<operator> != | <= | >= | [=~<>])
      | "(?P<double> (?: [^"\\] | \\. )*)"
      | '(?P<single> (?: [^'\\] | \\. )*)'
      | (?P<word> [^\s=!~<>"']+)
    )""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_INTEGER = re.compile(r"[+-]?[0-9]{1,19}")


class _Token(NamedTuple):
    kind: str  # operator, word, quoted; end where nothing is left
    text: str
    at: int


def compile_filter(text: str) -> Filter:
    """A function that says of a record whether it is meant. Text that makes no sense is refused (`bad_filter`)."""
    if len(text) > FILTER_LENGTH_MAX:
        raise Refused(f"filter of {len(text)} characters: at most {FILTER_LENGTH_MAX} are allowed", code="bad_filter")
    conditions = tuple(_conditions(list(_tokens(text)), _Token("end", "the end", len(text))))
    return lambda record: all(condition(record) for condition in conditions)


def _tokens(text: str) -> Iterator[_Token]:
    at = 0
    while match := _TOKEN.match(text, at):
        kind = match.lastgroup or ""
        start, at = match.start(kind), match.end()
        if kind in ("operator", "word"):
            yield _Token(kind, match[kind], start)
        else:
            yield _Token("quoted", _ESCAPED.sub(r"\1", match[kind]), start - 1)
    rest = text[at:].lstrip()
    if rest:
        _refuse(len(text) - len(rest), f"{rest!r:.40} begins no operator, word or closed quote")


def _conditions(tokens: list[_Token], end: _Token) -> Iterator[Filter]:
    """Always four tokens: field, operator, value, and an `and` unless the text ends there."""
    for first in range(0, len(tokens), 4):
        field, sign, value, joint = [*tokens[first : first + 4], end, end, end][:4]
        yield _condition(field, sign, value)
        if joint is not end and not _is_and(joint):
            _refuse(joint.at, f"'and' is expected, not {joint.text!r:.40}; a value with spaces must be quoted")
    if tokens and len(tokens) % 4 == 0:
        _refuse(end.at, f"a condition is expected after 'and'; fields are {_FIELDS}")


def _condition(field: _Token, sign: _Token, value: _Token) -> Filter:
    if field.kind == "word" and field.text in _NUMBERS:
        if sign.kind == "word" and sign.text.lower() == _ANY_OF:
            _check_value(value)
            return _any_of(_NUMBERS[field.text], frozenset(_numbers(field, value)))
        _check(field, sign, value, (*_COMPARE, _ANY_OF))
        return _number_condition(_NUMBERS[field.text], _COMPARE[sign.text], _number(field, value))
    if field.kind == "word" and (text_of := _text_field(field.text)):
        _check(field, sign, value, _MATCH)
        return _text_condition(text_of, _MATCH[sign.text], _bytes(value.text))
    _refuse(field.at, f"a field is expected, not {field.text!r:.40}; fields are {_FIELDS}")


def _check(field: _Token, sign: _Token, value: _Token, signs: Collection[str]) -> None:
    if sign.kind != "operator" or sign.text not in signs:
        _refuse(sign.at, f"{field.text!r:.40} takes one of {' '.join(signs)}, not {sign.text!r:.40}")
    _check_value(value)


def _check_value(value: _Token) -> None:
    if value.kind not in ("word", "quoted") or _is_and(value):
        _refuse(value.at, f"a value is expected, not {value.text!r:.40}; what is no plain word must be quoted")


def _is_and(token: _Token) -> bool:
    return token.kind == "word" and token.text.lower() == "and"


def _text_field(name: str) -> Callable[[Record], str | bytes | None] | None:
    header = name.removeprefix(_HEADER)
    if header and header != name:
        return lambda record: record.headers.get(header)
    return _TEXTS.get(name)


def _numbers(field: _Token, value: _Token) -> Iterator[int]:
    """What stands between commas."""
    at = value.at
    for text in value.text.split(","):
        yield _number(field, _Token(value.kind, text.strip(), at))
        at += len(text) + 1


def _number(field: _Token, value: _Token) -> int:
    if _INTEGER.fullmatch(value.text):
        return int(value.text)
    if field.text != "priority":
        _refuse(value.at, f"{field.text!r} is compared with a whole number, not {value.text!r:.40}")
    try:
        return priority(value.text)
    except BadPriority as error:
        _refuse(value.at, error.message)


def _number_condition(number_of: Callable[[Record], int], compare: Callable[[int, int], bool], wanted: int) -> Filter:
    return lambda record: compare(number_of(record), wanted)


def _any_of(number_of: Callable[[Record], int], wanted: frozenset[int]) -> Filter:
    return lambda record: number_of(record) in wanted


def _text_condition(
    text_of: Callable[[Record], str | bytes | None], match: Callable[[bytes | None, bytes], bool], wanted: bytes
) -> Filter:
    return lambda record: match(_bytes(text_of(record)), wanted)


@overload
def _bytes(text: str) -> bytes: ...
@overload
def _bytes(text: str | bytes | None) -> bytes | None: ...
def _bytes(text: str | bytes | None) -> bytes | None:
    """Keys and payloads are bytes and need not be text; of UTF-8, bytes contain bytes just where text contains text."""
    return text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text


def _refuse(at: int, problem: str) -> NoReturn:
    raise Refused(f"bad filter at character {at + 1}: {problem}", code="bad_filter")
