"""Whoever holds a lock does not stand still with it: no `yield` and no `await` where one is held.

In an event loop the next task would wait for the lock, and with it the one that has to give it back: for ever.
"""

from __future__ import annotations

import ast
from pathlib import Path

import mqueue

SOURCES = Path(mqueue.__file__).parent


def test_nobody_stands_still_with_a_lock() -> None:
    found = [
        f"{path.relative_to(SOURCES)}:{block.lineno}"
        for path in sorted(SOURCES.rglob("*.py"))
        for block in ast.walk(ast.parse(path.read_text()))
        if isinstance(block, ast.With) and _locks(block) and _stands_still(block)
    ]
    assert found == []


def _locks(block: ast.With) -> bool:
    """A lock of threads: those of a loop are entered with `async with`."""
    taken = (ast.unparse(item.context_expr).rpartition(".")[2] for item in block.items)
    return any(name.strip("_") in ("lock", "mutex") or name.startswith("reaching(") for name in taken)


def _stands_still(block: ast.With) -> bool:
    ahead: list[ast.AST] = list(block.body)
    while ahead:
        node = ahead.pop()
        if isinstance(node, ast.Yield | ast.YieldFrom | ast.Await):
            return True
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):  # made here, run elsewhere
            ahead.extend(ast.iter_child_nodes(node))
    return False
