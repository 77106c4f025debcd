"""A configuration file, read without being trusted: YAML of one plain tree, every value with its line.

Anchors, aliases, tags, duplicate keys, deep nesting and long files are refused: nothing in a configuration needs them,
and each has been used to attack a reader. Scalars stay text as written, so `off` is off and not a boolean. Does not
know what a value means.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import yaml  # type: ignore[import-untyped]

from mqueue.config.given import Finds, Given, add_secret, meant, read_text
from mqueue.config.keys import BRANCHES, KEYS, SECRET_FILES
from mqueue.config.kinds import Raw

FILE_BYTES_MAX = 256 * 1024
DEPTH_MAX = 16

_NULL = "tag:yaml.org,2002:null"


def from_file(path: str | Path) -> Finds:
    finds = Finds([], [])
    try:
        text = read_text(path, FILE_BYTES_MAX)
    except ValueError as error:
        finds.problems.append(f"{path}: {error}")
        return finds
    try:
        hostile = next(_hostile(text), None)
        if hostile is None:
            root = yaml.compose(text, Loader=yaml.SafeLoader)
    except (yaml.YAMLError, ValueError, OverflowError) as error:  # the latter two for escapes that are no character
        hostile = _broken(error)
    if hostile is not None:
        finds.problems.append(f"{path}:{hostile}")
    elif root is not None:  # an empty file is fine
        _Reader(str(path), finds).branch(root, "")
    return finds


def _hostile(text: str) -> Iterator[str]:
    """Line and sentence of what no configuration needs. From the events, before anything is built from them."""
    depth = 0
    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        line = event.start_mark.line + 1
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None) is not None:
            yield f"{line}: anchors and aliases are not taken; write the value out"
        if getattr(event, "tag", None) is not None:
            yield f"{line}: tags ({event.tag!r:.60}) are not taken; write the plain value"
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > DEPTH_MAX:
            yield f"{line}: nested deeper than {DEPTH_MAX}"


def _broken(error: Exception) -> str:
    """Without the lines around it, which the library would show: there may be a secret in them."""
    mark, problem = getattr(error, "problem_mark", None), getattr(error, "problem", None)
    return f"{mark.line + 1 if mark else 1}: is not YAML: {problem or 'it holds characters that are not allowed'}"


class _Reader:
    """Walks the tree of a file beside the tree of keys."""

    def __init__(self, path: str, finds: Finds) -> None:
        self._path = path
        self._finds = finds

    def branch(self, node: yaml.Node, above: str) -> None:
        if not isinstance(node, yaml.MappingNode):
            if not _is_null(node):
                self._wrong(node, f"{above or 'the file'} takes a mapping of {', '.join(_below(above))}")
            return
        for name, value in self._entries(node, above):
            path = f"{above}.{name}" if above else name
            if path in BRANCHES:
                self.branch(value, path)
            elif path in KEYS or path in SECRET_FILES:
                self._leaf(value, path)
            else:
                self._wrong(value, f"unknown key {path!r:.80}{_suggested(name, above)}")

    def _leaf(self, node: yaml.Node, path: str) -> None:
        try:
            raw = self._raw(node, path)
        except ValueError:
            self._wrong(node, f"{path} is nested too deep for a value")
            return
        where = f"{self._path}:{node.start_mark.line + 1}: {path}"
        if path in KEYS:
            self._finds.given.append(Given(KEYS[path], raw, where))
        elif isinstance(raw, str):
            add_secret(self._finds, SECRET_FILES[path], raw, where)
        elif raw is not None:
            self._wrong(node, f"{path} takes the path of a file")

    def _raw(self, node: yaml.Node, path: str) -> Raw:
        if _is_null(node):
            return None
        if isinstance(node, yaml.SequenceNode):
            return tuple(_scalar(item) for item in node.value)
        if isinstance(node, yaml.MappingNode):
            return {name: _scalar(value) for name, value in self._entries(node, path)}
        return _scalar(node)

    def _entries(self, node: yaml.MappingNode, above: str) -> Iterator[tuple[str, yaml.Node]]:
        seen: dict[str, int] = {}
        for name, value in node.value:
            if not isinstance(name, yaml.ScalarNode):
                self._wrong(name, f"a key below {above or 'the file'} is not a name")
            elif name.value in seen:
                self._wrong(name, f"{name.value!r:.80} stands there twice, first in line {seen[name.value]}")
            else:
                seen[name.value] = name.start_mark.line + 1
                yield name.value, value

    def _wrong(self, node: yaml.Node, sentence: str) -> None:
        self._finds.problems.append(f"{self._path}:{node.start_mark.line + 1}: {sentence}")


def _is_null(node: yaml.Node) -> bool:
    return isinstance(node, yaml.ScalarNode) and node.tag == _NULL


def _scalar(node: yaml.Node) -> str:
    if not isinstance(node, yaml.ScalarNode):
        raise ValueError
    return str(node.value)


def _below(above: str) -> list[str]:
    start = f"{above}." if above else ""
    return list(dict.fromkeys(path[len(start) :].split(".")[0] for path in KEYS if path.startswith(start)))


def _suggested(name: str, above: str) -> str:
    """Of what may stand here; else of the whole tree, for a key that is only in the wrong place."""
    elsewhere = [path for path in (*KEYS, *SECRET_FILES) if path.rpartition(".")[2].lower() == name.lower()]
    if elsewhere and not any(word.lower() == name.lower() for word in _below(above)):
        return f"; did you mean {' or '.join(elsewhere[:2])}?"
    return meant(name, _below(above)) or f"; allowed here: {', '.join(_below(above))}"
