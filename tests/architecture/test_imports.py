"""Imports inside src/mqueue go one way, bottom to top: a part knows the layers below it, none above or beside it.

Every import counts, also one inside a function or under `if TYPE_CHECKING`: a type is knowledge too. What two layers
both need belongs into a lower one.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = "mqueue"
SRC = Path(__file__).resolve().parents[2] / "src"

LAYERS = (
    ("model",),
    ("policy",),
    ("heart", "wire"),
    ("log",),
    ("store",),
    ("broker",),
    ("lake",),
    ("cluster",),
    ("server", "client"),
    ("pipeline",),
    ("config",),
    ("assembly",),
    ("cli",),
)
# These stand on top: they may import everything, and no layer may import them.
TOP = ("__init__", "__main__", "testing", "demo", "taskiq")

LEVEL = {part: level for level, parts in enumerate((*LAYERS, TOP)) for part in parts}
FOR_TYPES_HINT = " (TYPE_CHECKING is no way around: move the type down, or name a Protocol here)"
ORDER = " < ".join(", ".join(parts) for parts in LAYERS)


def violations(src: Path) -> list[str]:
    found = []
    for path in sorted((src / PACKAGE).rglob("*.py")):
        place = path.relative_to(src)
        part = Path(place.parts[1]).stem
        if part not in LEVEL:
            found.append(f"{place}: {part} has no place in the order; give it one in LAYERS")
            continue
        tree = ast.parse(path.read_text(encoding="utf-8"), filename=str(place))
        found += [f"{place}:{line}: {why}" for line, why in _wrong_imports(tree, part, place.parent.parts)]
    return found


def _wrong_imports(tree: ast.Module, part: str, package: tuple[str, ...]) -> Iterator[tuple[int, str]]:
    for_types = _nodes_for_types(tree)
    for node in ast.walk(tree):
        for target in _imported_parts(node, package):
            if part in TOP or target == part:
                continue
            if target not in LEVEL:
                yield node.lineno, f"{part} imports {target}, which has no place in the order; give it one in LAYERS"
            elif LEVEL[target] >= LEVEL[part]:
                where = "above" if LEVEL[target] > LEVEL[part] else "beside"
                hint = FOR_TYPES_HINT if node in for_types else ""
                yield node.lineno, f"{part} imports {target}, which stands {where} it{hint}"


def _imported_parts(node: ast.AST, package: tuple[str, ...]) -> Iterator[str]:
    """The parts of mqueue that one import statement names; the root package itself counts as `__init__`."""
    if isinstance(node, ast.Import):
        for alias in node.names:
            root, *below = alias.name.split(".")
            if root == PACKAGE:
                yield below[0] if below else "__init__"
    elif isinstance(node, ast.ImportFrom):
        base = package[: len(package) - node.level + 1] if node.level else ()
        root, *below = (*base, *(node.module.split(".") if node.module else ()))
        if root != PACKAGE:
            return
        if below:
            yield below[0]
        else:
            for alias in node.names:
                yield alias.name if alias.name in LEVEL else "__init__"


def _nodes_for_types(tree: ast.Module) -> set[ast.AST]:
    blocks = [n for n in ast.walk(tree) if isinstance(n, ast.If) and ast.unparse(n.test).endswith("TYPE_CHECKING")]
    return {inner for block in blocks for statement in block.body for inner in ast.walk(statement)}


def _plant(src: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = src / PACKAGE / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return src


def test_imports_go_one_way() -> None:
    assert any((SRC / PACKAGE).rglob("*.py")), f"no modules found below {SRC}"
    found = violations(SRC)
    assert not found, "\n".join(["imports must go one way:", ORDER, *found])


def test_a_clean_tree_passes(tmp_path: Path) -> None:
    clean = {
        "__init__.py": "from .broker import Broker\nfrom .testing import ManualClock\n",
        "model/message.py": "import enum\nimport mqueue_other\nfrom . import limits\nfrom .limits import ROWS_MAX\n",
        "heart/runs.py": "from ..model import message\nimport mqueue.model.limits\nfrom mqueue import model\n",
        "log/segments/commit.py": "from ... import wire, policy\nfrom ...heart.runs import Run\nfrom .. import base\n",
        "config.py": "import mqueue.server\nfrom . import client\n",
        "testing/plugin.py": "from .. import Broker, cli\nimport mqueue.demo\n",
        "demo.py": "import mqueue\n",
    }
    assert violations(_plant(tmp_path, clean)) == []


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("model/message.py", "from mqueue.heart import runs", "1: model imports heart, which stands above it"),
        ("model/message.py", "import os, mqueue.cli.topics as t", "1: model imports cli, which stands above it"),
        ("heart/runs.py", "\nfrom ..wire.frame import Frame", "2: heart imports wire, which stands beside it"),
        ("heart/__init__.py", "from .. import wire", "1: heart imports wire, which stands beside it"),
        ("log/segments/commit.py", "from ...store import x", "1: log imports store, which stands above it"),
        ("server/http/v1.py", "from mqueue import client", "1: server imports client, which stands beside it"),
        ("store/base.py", "from mqueue import Broker", "1: store imports __init__, which stands above it"),
        ("broker/base.py", "import mqueue", "1: broker imports __init__, which stands above it"),
        ("broker/base.py", "from ..testing import clock", "1: broker imports testing, which stands above it"),
        ("config.py", "def f():\n    from .assembly import g", "2: config imports assembly, which stands above it"),
        ("wire/frame.py", "from ..attic import x", "1: wire imports attic, which has no place in the order"),
        ("attic/__init__.py", "", " attic has no place in the order"),
        (
            "heart/runs.py",
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from ..log import Log",
            "3: heart imports log, which stands above it (TYPE_CHECKING is no way around",
        ),
    ],
)
def test_a_planted_violation_is_caught(tmp_path: Path, name: str, text: str, why: str) -> None:
    found = violations(_plant(tmp_path, {name: text}))
    assert len(found) == 1
    assert found[0].startswith(f"{PACKAGE}/{name}:{why}")
