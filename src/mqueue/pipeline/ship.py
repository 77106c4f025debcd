"""The package in a bag, for clusters where it is not installed: what is pickled brings the code that it needs.

    driver: the class in a bag ──► planners elsewhere: the bag is opened, modules come out of it, then the class
                                   what they make is pickled with the same bag ──► executors: the same once more

What travels is source text, imported from memory; the packages it stands on (aiohttp, google-crc32c, msgspec, numpy,
pyarrow) have to be there. Where mqueue is installed, that one is used. Whatever opens a bag is pickled by value, so
nothing here imports any part of mqueue.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.resources
import importlib.util
import pickle
import sys
import zlib
from collections.abc import Callable, Iterator, Sequence
from importlib.resources.abc import Traversable
from types import ModuleType
from typing import Any

PACKAGE = "mqueue"
_HERE = f"{PACKAGE}.pipeline.ship"
_LEFT_OUT = ("assembly", "cli", "config", "jobs", "server", "testing", "worker")
"""Parts that no reader or writer needs."""


class Bag(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Modules by name: whether it is a package, and its source, compressed."""

    def __init__(self, modules: dict[str, tuple[bool, bytes]]) -> None:
        self.modules = modules

    @classmethod
    def packed(cls) -> Bag:
        """The package as it is here, be it in a directory or in a zip."""
        return cls(dict(_modules(importlib.resources.files(PACKAGE), PACKAGE)))

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname not in self.modules:
            return None
        return importlib.util.spec_from_loader(fullname, self, is_package=self.modules[fullname][0])

    def exec_module(self, module: ModuleType) -> None:
        text = zlib.decompress(self.modules[module.__name__][1])
        exec(compile(text, f"<bag>/{module.__name__}", "exec", dont_inherit=True), module.__dict__)  # noqa: S102


class Bagged:
    """A data source whose pickle is a bag and then the class. `words` are set in the class where it is opened."""

    def __init__(self, kind: Any, words: dict[str, Any]) -> None:
        self._kind = kind
        self._words = words

    def name(self) -> str:
        told: str = self._kind.name()
        return told

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        by_value(sys.modules[_HERE])
        return opened, (Bag.packed(), pickle.dumps((self._kind, self._words)))


class Carried:
    """Objects that are pickled with the bag that their class came out of, if it came out of one."""

    def __reduce_ex__(self, protocol: Any) -> Any:
        bag = next((finder for finder in sys.meta_path if type(finder).__name__ == Bag.__name__), None)
        reduced = super().__reduce_ex__(protocol)
        return reduced if bag is None else (revived, (bag, pickle.dumps(tuple(reduced[:3]))))


def opened(bag: Bag, pickled: bytes) -> Any:
    """The class that travelled with a bag."""
    unpack(bag)
    kind, words = pickle.loads(pickled)  # noqa: S301 - who sent this function sent that too
    for name, value in words.items():
        setattr(kind, name, value)
    return kind


def revived(bag: Bag, pickled: bytes) -> Any:
    """The object that travelled with a bag."""
    unpack(bag)
    make, words, *state = pickle.loads(pickled)  # noqa: S301 - who sent this function sent that too
    made = make(*words)
    made.__dict__.update(*filter(None, state))
    return made


def unpack(bag: Bag) -> None:
    """Have imports find the package in a bag if they find it nowhere else; what is pickled here then travels on."""
    if importlib.util.find_spec(PACKAGE) is None:
        sys.meta_path.append(bag)
        by_value(importlib.import_module(_HERE))


def by_value(module: ModuleType) -> None:
    """Have what is in a module pickled as code, not as a name."""
    from pyspark import cloudpickle

    cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]


def _modules(folder: Traversable, package: str) -> Iterator[tuple[str, tuple[bool, bytes]]]:
    for entry in folder.iterdir():
        if entry.is_dir():
            if entry.name not in _LEFT_OUT:
                yield from _modules(entry, f"{package}.{entry.name}")
        elif entry.name == "__init__.py":
            yield package, (True, zlib.compress(entry.read_bytes(), 9))
        elif entry.name.endswith(".py"):
            yield f"{package}.{entry.name.removesuffix('.py')}", (False, zlib.compress(entry.read_bytes(), 9))
