"""
A contract for import-linter: who may import one module at run time.

Its own contract types work on a graph that knows `.py` files only, so they cannot see the compiled `tenure._core`. This
one reads the source. What stands under `if TYPE_CHECKING:` is free, since it never runs.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from importlinter import Contract, ContractCheck, fields, output

SOURCE = Path("python")


class DoorContract(Contract):
    """`importers` may import `module`; nobody else may."""

    type_name = "door"

    # Descriptions to import-linter, values to us.
    module: Any = fields.StringField()
    importers: Any = fields.ListField(subfield=fields.StringField())

    def check(self, graph: Any, verbose: bool) -> ContractCheck:  # noqa: ARG002  # the signature is import-linter's
        """Read every module of the house and list the imports that are not allowed."""
        found = [
            (module, line)
            for module, tree in _modules()
            if module not in self.importers
            for line in _imports(tree, self.module)
        ]
        return ContractCheck(kept=not found, metadata={"found": found})

    def render_broken_contract(self, check: ContractCheck) -> None:
        """Say who, and where."""
        for module, line in check.metadata["found"]:
            output.print_error(f"- {module} may not import {self.module} (line {line})", bold=False)


def _modules() -> Iterator[tuple[str, ast.Module]]:
    for path in sorted(SOURCE.rglob("*.py")):
        parts = path.relative_to(SOURCE).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        yield name, ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def _imports(tree: ast.Module, target: str) -> Iterator[int]:
    """The lines that import *target* or a name out of it; imports of its submodules are other modules' business."""
    parent, _, leaf = target.rpartition(".")
    for node in _at_run_time(tree):
        if isinstance(node, ast.Import):
            hit = any(alias.name == target for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            hit = (node.module == parent and any(alias.name == leaf for alias in node.names)) or (
                node.module == target and not all(_is_module(target, alias.name) for alias in node.names)
            )
        else:
            continue
        if hit:
            yield node.lineno


def _is_module(package: str, name: str) -> bool:
    # `from tenure import errors` reaches past the front door for a room; the layers judge that one. The compiled module
    # has a stub beside it.
    base = SOURCE.joinpath(*package.split("."), name)
    return base.is_dir() or base.with_suffix(".py").exists() or base.with_suffix(".pyi").exists()


def _at_run_time(node: ast.AST) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and _asks_for_type_checking(child.test):
            for other in child.orelse:
                yield other
                yield from _at_run_time(other)
        else:
            yield child
            yield from _at_run_time(child)


def _asks_for_type_checking(test: ast.expr) -> bool:
    return (isinstance(test, ast.Name) and test.id == "TYPE_CHECKING") or (
        isinstance(test, ast.Attribute) and test.attr == "TYPE_CHECKING"
    )
