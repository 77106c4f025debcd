"""Masks on the wire. A mask is an integer of up to 4096 bits; msgpack knows integers of 64.

Where a mask stands beside its start and stop, nil says that all of it is set, which is what most masks say; any other
is written as little-endian bytes without zeros at the end. A struct that holds masks somewhere has a *twin*: a struct
with the same fields, in which the masks are such bytes. msgspec writes and checks the twin. Twins, and the ways there
and back, are made once per class from its annotations: see `form_of`. Knows no event and no checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import GenericAlias
from typing import Any, NamedTuple, TypeAlias, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Struct
from msgspec.structs import astuple

from mqueue.model.limits import FRAME_ROWS_MAX


def _same(value: Any) -> Any:
    return value


class Form(NamedTuple):
    """How values of a type look on the wire: as which type, and the ways there and back."""

    type: Any
    thin: Callable[[Any], Any] = _same
    thick: Callable[[Any], Any] = _same

    @property
    def changed(self) -> bool:
        return self.thin is not _same


Forms: TypeAlias = Mapping[tuple[type[Struct] | None, str], Callable[[Any], Form]]
"""By class and field what is special there, made from the annotation of the field. Class None: of any class."""


def form_of(kind: Any, special: Forms, nameless: frozenset[type[Struct]] = frozenset()) -> Form:
    """The form of a struct, of a tuple of any length, or of anything that holds no mask.

    Structs in `nameless` are written without the names of their fields, as those are that say so themselves.
    """
    if isinstance(kind, type) and issubclass(kind, Struct):
        return _struct(kind, special, nameless)
    if get_origin(kind) is tuple and get_args(kind)[1:] == (...,):
        return _many(form_of(get_args(kind)[0], special, nameless), kind)
    return Form(kind)


def spans(kind: Any) -> Form:
    """Many (partition, start, stop, mask, ...)."""
    fields = get_args(get_args(kind)[0])
    twin = GenericAlias(tuple, (*fields[:3], bytes | None, *fields[4:]))
    return Form(GenericAlias(tuple, (twin, ...)), _thin_spans, _thick_spans)


def marks(kind: Any) -> Form:
    """Many (start, mask)."""
    return Form(
        tuple[tuple[int, bytes], ...],
        lambda pairs: [(start, _bytes(mask)) for start, mask in pairs],
        lambda pairs: tuple((start, int.from_bytes(data, "little")) for start, data in pairs),
    )


def mask(kind: Any) -> Form:
    """A mask that stands alone."""
    return Form(bytes, _bytes, lambda data: int.from_bytes(data, "little"))


def _thin_spans(spans: Any) -> Any:
    return [
        (
            partition,
            start,
            stop,
            None if mask.bit_count() == mask.bit_length() == stop - start <= FRAME_ROWS_MAX else _bytes(mask),
            *rest,
        )
        for partition, start, stop, mask, *rest in spans
    ]


def _thick_spans(spans: Any) -> Any:
    return tuple(
        [
            (partition, start, stop, _full(stop - start) if data is None else int.from_bytes(data, "little"), *rest)
            for partition, start, stop, data, *rest in spans
        ]
    )


def _full(length: int) -> int:
    if not 0 <= length <= FRAME_ROWS_MAX:
        raise ValueError(f"a full mask of {length} bits; at most {FRAME_ROWS_MAX} are written so")
    return (1 << length) - 1


def _bytes(mask: int) -> bytes:
    return mask.to_bytes((mask.bit_length() + 7) // 8, "little")


def _many(item: Form, kind: Any) -> Form:
    if not item.changed:
        return Form(kind)
    _, thin, thick = item
    return Form(
        GenericAlias(tuple, (item.type, ...)),
        lambda values: [thin(value) for value in values],
        lambda values: tuple([thick(value) for value in values]),
    )


def _struct(kind: type[Struct], special: Forms, nameless: frozenset[type[Struct]]) -> Form:
    hints = get_type_hints(kind)
    forms: list[Form] = []
    for name in kind.__struct_fields__:
        make = special.get((kind, name)) or special.get((None, name))
        forms.append(make(hints[name]) if make else form_of(hints[name], special, nameless))
    changed = [place for place, form in enumerate(forms) if form.changed]
    if not changed:
        return Form(kind)
    twin = _twin(kind, forms, kind in nameless)
    thin = _mapped([(place, forms[place].thin) for place in changed], twin)
    thick = _mapped([(place, forms[place].thick) for place in changed], kind)
    return Form(twin, thin, thick)


def _mapped(changes: list[tuple[int, Any]], target: type[Struct]) -> Callable[[Any], Any]:
    """From one struct to its twin, or back: all fields as they are, but for some that go through a function."""
    if len(changes) == 1:  # as nearly all events have it
        place, change = changes[0]

        def map_one(value: Any) -> Any:
            fields = list(astuple(value))
            fields[place] = change(fields[place])
            return target(*fields)

        return map_one

    def map_some(value: Any) -> Any:
        fields = list(astuple(value))
        for place, change in changes:
            fields[place] = change(fields[place])
        return target(*fields)

    return map_some


def _twin(kind: type[Struct], forms: list[Form], nameless: bool) -> type[Struct]:
    """The fields of a struct in their forms, with its tag and its defaults."""
    info = msgspec.structs.fields(kind)
    fields: list[Any] = [
        (field.name, form.type) if field.required else (field.name, form.type, field.default)
        for field, form in zip(info, forms, strict=True)
    ]
    config = kind.__struct_config__
    return msgspec.defstruct(
        kind.__name__,
        fields,
        tag=config.tag,
        array_like=config.array_like or nameless,
        frozen=True,
        gc=False,
    )
