"""A configuration shown: as a tree with secrets masked, as tables for the documentation, as an example file.

All three are made from the table of keys, so that what is printed is what is read.
"""

from __future__ import annotations

import json
from functools import reduce
from typing import Any

from mqueue.config.keys import PARTS, Key
from mqueue.config.topics import topic_values
from mqueue.config.tree import Config

_WIDTH = 120
_COMMENT_COLUMN = 38
_HEAD = "| key | variable | default | meaning |\n|---|---|---|---|\n"


def describe(config: Config) -> dict[str, Any]:
    """In the words and the shape of a file, in plain types; of secrets only that they are there."""
    tree: dict[str, Any] = {}
    for part in PARTS.values():
        for key in part:
            *above, name = key.path.split(".")
            branch = reduce(lambda node, step: node.setdefault(step, {}), above, tree)
            branch[name] = _value(key, config)
    return tree


def table(part: str) -> str:
    """The keys of one part, as Markdown."""
    return _HEAD + "".join(_row(key) for key in PARTS[part])


def example() -> str:
    """A file that says every default, with what each means."""
    lines = [
        "# Every key with its default. What is left out keeps it; docs/configuration.md has the variables.",
        "# Durations: 250ms, 30s, 5m, 12h, 7d. Sizes: 512KiB, 64MB (of 1024s). Nothing: null.",
    ]
    for part, keys in PARTS.items():
        lines += ["", *_section(part, keys)]
    return "\n".join(lines) + "\n"


def _section(part: str, keys: tuple[Key, ...]) -> list[str]:
    lines, open_branches = [f"{part}:"], [part]
    for key in keys:
        *above, name = key.path.split(".")
        for depth, step in enumerate(above):
            if open_branches[depth : depth + 1] != [step]:
                lines.append(f"{'  ' * depth}{step}:")
                open_branches = above[: depth + 1]
        open_branches = above
        lines += _leaf("  " * len(above), f"{name}: {_yaml(_default(key))}".rstrip(), key.meaning.replace("`", ""))
    return lines


def _leaf(indent: str, text: str, meaning: str) -> list[str]:
    line = f"{f'{indent}{text}':<{_COMMENT_COLUMN}}  # {meaning}"
    return [line] if len(line) <= _WIDTH - 2 else [f"{indent}# {meaning}", f"{indent}{text}"]


def _row(key: Key) -> str:
    variables = ", ".join(f"`{name}`" for name in key.variables)
    if key.secret:
        variables += ", each also with `_FILE`"
    return f"| `{key.path}` | {variables} | `{_yaml(_default(key))}` | {key.meaning} |\n"


def _default(key: Key) -> Any:
    if key.default is not None:
        return None if key.default == "none" else key.default
    return _value(key, Config())


def _value(key: Key, config: Config) -> Any:
    if key.field is None:
        return key.kind.show(key.default)
    head, _, rest = key.field.partition(".")
    if head == "topic":
        return key.kind.show(topic_values(config.topic)[rest])
    return key.kind.show(reduce(getattr, key.field.split("."), config))


def _yaml(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
