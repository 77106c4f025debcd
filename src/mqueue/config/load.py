"""From a file, a `.env`, the environment and flags to one tree: the later of these wins, and all problems come at once.

What is wrong is reported even where a later source says something better: it was written to be obeyed.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from mqueue.config import checks, document, variables
from mqueue.config.given import BadConfig, Finds, Given
from mqueue.config.keys import KEYS
from mqueue.config.kinds import Unfit
from mqueue.config.topics import topic_settings
from mqueue.config.tree import Config
from mqueue.model.settings import CLUSTER_PARTITIONS, Settings

S = TypeVar("S", bound=Struct)

_SHOWN_MAX = 60


def load(
    path: str | os.PathLike[str] | None = None,
    environ: Mapping[str, str] = os.environ,
    flags: Mapping[str, Any] = MappingProxyType({}),
    *,
    dotenv: str | os.PathLike[str] | None = ".env",
) -> Config:
    """The configuration, or `BadConfig` with everything that is wrong. Flags: `data-dir`, `memory`, `http`, `grpc`,
    `amqp`, `config`, or the path of any key."""
    local, local_variables = variables.from_dotenv(Path(dotenv)) if dotenv is not None else (Finds([], []), {})
    named = path or flags.get("config") or _named(environ) or _named(local_variables)
    sources = [
        document.from_file(Path(named)) if named else Finds([], []),
        local,
        variables.from_environment(environ),
        variables.from_flags(flags),
    ]
    problems = [problem for source in sources for problem in source.problems]
    wheres: dict[str, str] = {}
    values: dict[str, Any] = {}
    unread: set[str] = set()
    for given in (given for source in sources for given in source.given):
        try:
            values[given.key.path] = _parsed(given)
            wheres[given.key.path] = given.where
        except ValueError as error:
            problems.append(given.lost or _sentence(given, error))
            unread.add(given.key.path)
    config = _build(values, wheres, problems)
    problems += [f"{wheres.get(key, key)} {sentence}" for key, sentence in checks.check(config, unread)]
    if problems:
        raise BadConfig(problems)
    return config


def _named(environ: Mapping[str, str]) -> str | None:
    return environ.get(variables.CONFIG_VARIABLE) or None


def _parsed(given: Given) -> Any:
    if given.lost:
        raise ValueError
    return given.key.kind.parse(given.raw)


def _sentence(given: Given, error: ValueError) -> str:
    """What Python itself says of a bad value is left out: it may show it."""
    why = str(error) if isinstance(error, Unfit) else f"it takes {given.key.kind.takes}"
    return f"{given.where} is {_shown(given)}; {why}"


def _shown(given: Given) -> str:
    if given.key.secret:
        return "(hidden)"
    if given.raw is None:
        return "empty"
    text = repr(given.raw if not isinstance(given.raw, tuple | Mapping) else list(given.raw))
    return text if len(text) <= _SHOWN_MAX else f"{text[:_SHOWN_MAX]}…"


def _build(values: Mapping[str, Any], wheres: Mapping[str, str], problems: list[str]) -> Config:
    by_field = {field: values[path] for path, key in KEYS.items() if path in values and (field := key.field)}
    topic = {field[6:]: value for field, value in by_field.items() if field.startswith("topic.")}
    if topic.get("partitions") is None:
        topic["partitions"] = CLUSTER_PARTITIONS if by_field.get("cluster.databases") else Settings().partitions
    settings, wrong = topic_settings(topic)
    paths = {key.field: path for path, key in KEYS.items()}
    for name, sentence in wrong.items():
        path = paths.get(f"topic.{name}", "defaults.topic")
        problems.append(f"{wheres.get(path, path)}: {sentence}")
    others = {field: value for field, value in by_field.items() if not field.startswith("topic.")}
    auto = {"security.auth": None} | others
    return checks.resolve(replace(_changed(Config(), auto), topic=settings))


def _changed(tree: S, fields: Mapping[str, Any]) -> S:
    """The same tree with these fields, named by their dotted way down, changed."""
    heads: dict[str, dict[str, Any]] = {}
    changes: dict[str, Any] = {}
    for field, value in fields.items():
        head, dot, rest = field.partition(".")
        if dot:
            heads.setdefault(head, {})[rest] = value
        else:
            changes[head] = value
    for head, below in heads.items():
        changes[head] = _changed(getattr(tree, head), below)
    return replace(tree, **changes)
