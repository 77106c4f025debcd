"""How stubs are written for classes whose calls are made from other classes when they are imported.

No type checker can follow that. So the signatures are read off the living classes, and the imports they need off the
files that the original calls stand in.
"""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

SRC = Path(__file__).resolve().parents[1] / "src/mqueue"


class Stub(NamedTuple):
    path: Path
    head: str
    module: ModuleType
    """Where the classes are; what is in it needs no import."""
    classes: Sequence[type]
    elsewhere: Mapping[str, str]
    """How names are imported that the files of the signatures do not know."""

    def text(self) -> str:
        """The text of the stub, in house format."""
        imports: set[str] = set()
        classes = [self._class(kind, imports) for kind in self.classes]
        return self._formatted(self.head + "\n".join(sorted(imports)) + "\n\n" + "\n\n".join(classes))

    def write(self) -> None:
        self.path.write_text(self.text(), encoding="utf-8")

    def _class(self, kind: type, imports: set[str]) -> str:
        members = [self._member(name, member, imports) for name, member in _shown(kind)]
        return f"class {kind.__name__}:\n" + textwrap.indent("\n".join([f'"""{kind.__doc__}"""', *members]), "    ")

    def _member(self, name: str, member: Any, imports: set[str]) -> str:
        if isinstance(member, property):
            assert member.fget is not None
            return "@property\n" + self._function(name, member.fget, imports)
        return self._function(name, member, imports)

    def _function(self, name: str, function: Callable[..., Any], imports: set[str]) -> str:
        head = "async def" if inspect.iscoroutinefunction(function) else "def"
        body = f'    """{function.__doc__}"""' if function.__doc__ else "    ..."
        tree = ast.parse(f"{head} {name}{inspect.signature(function)}: ...").body[0]
        assert isinstance(tree, ast.FunctionDef | ast.AsyncFunctionDef)
        home = sys.modules[inspect.unwrap(function).__module__]
        signature = ast.unparse(_Annotations(self, home, imports).visit(tree)).removesuffix("\n    ...")
        return f"{signature}\n{body}"

    def _formatted(self, text: str) -> str:
        for verb in (["check", "--quiet", "--fix", "--select", "I"], ["format", "--quiet"]):
            command = [sys.executable, "-m", "ruff", *verb, "--stdin-filename", str(self.path), "-"]
            done = subprocess.run(command, input=text, capture_output=True, text=True, check=True, cwd=self.path.parent)
            text = done.stdout
        return text


def _shown(kind: type) -> Iterator[tuple[str, Any]]:
    """What a class says it has; of the names with underscores only Python's own."""
    for name, member in vars(kind).items():
        if (inspect.isfunction(member) or isinstance(member, property)) and (
            not name.startswith("_") or name.startswith("__")
        ):
            yield name, member


class _Annotations(ast.NodeTransformer):
    """Turns the texts that annotations are into code, and notes what that code has to import."""

    def __init__(self, stub: Stub, home: ModuleType, imports: set[str]) -> None:
        self._stub = stub
        self._home = home
        self._imported = dict(_imports(ast.parse(inspect.getsource(home))))
        self._imports = imports

    def visit_arguments(self, node: ast.arguments) -> ast.arguments:
        for argument in [*node.posonlyargs, *node.args, *node.kwonlyargs, node.vararg, node.kwarg]:
            if argument is not None:
                argument.annotation = self._code(argument.annotation)
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> ast.AST:
        node.returns = self._code(node.returns)
        node.args = self.visit_arguments(node.args)
        return node

    visit_AsyncFunctionDef = visit_FunctionDef  # noqa: N815

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        """Our own modules are left out: a method of the same name, as `explain`, would hide them."""
        module = getattr(self._home, node.value.id, None) if isinstance(node.value, ast.Name) else None
        if inspect.ismodule(module) and module.__name__.startswith("mqueue."):
            self._imports.add(f"from {module.__name__} import {node.attr}")
            return ast.Name(node.attr)
        return self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> ast.AST:
        name = node.id
        if name in self._stub.elsewhere:
            self._imports.add(self._stub.elsewhere[name])
        elif name in self._imported:
            self._imports.add(self._imported[name])
        elif name in vars(self._home) and not hasattr(self._stub.module, name):
            self._imports.add(f"from {self._home.__name__} import {name}")
        return node

    def _code(self, annotation: ast.expr | None) -> Any:
        if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
            return self.visit(ast.parse(annotation.value, mode="eval").body)
        return annotation


def _imports(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """(name, statement that imports it) of a file."""
    for node in tree.body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            for alias in node.names:
                of = f"from {node.module} " if isinstance(node, ast.ImportFrom) else ""
                renamed = f" as {alias.asname}" if alias.asname else ""
                yield alias.asname or alias.name, f"{of}import {alias.name}{renamed}"
