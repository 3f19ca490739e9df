"""The project's own Python files, each read and parsed once."""

from __future__ import annotations

import ast
import gc
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

import pytest

from tests import ROOT

FLOORS = ("routes", "app", "tools", "parsing")
FOLDERS = (*FLOORS, "tests", "benchmarks")


class Source(NamedTuple):
    """One Python file: its path from the root, its text and its tree."""

    path: str
    text: str
    tree: ast.Module

    @property
    def module(self) -> str:
        return self.path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


@cache
def sources() -> tuple[Source, ...]:
    found = []
    gc.disable()  # millions of nodes that stay: to look through them again and again took two thirds of the time
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            text = path.read_text()
            found.append(Source(path.relative_to(ROOT).as_posix(), text, ast.parse(text, path)))
    gc.freeze()
    gc.enable()
    return tuple(found)


Function = ast.FunctionDef | ast.AsyncFunctionDef


def functions(tree: ast.AST) -> Iterator[Function]:
    return (node for node in ast.walk(tree) if isinstance(node, Function))


def nothing(wrong: list[str], *, because: str) -> None:
    assert not wrong, f"{because}\n" + "\n".join(wrong)


def imports(source: Source, modules: set[str]) -> set[str]:
    """The house's modules that a file imports, each as precisely as it is named."""
    found = set()
    for node in ast.walk(source.tree):
        match node:
            case ast.Import(names):
                found |= {alias.name for alias in names}
            case ast.ImportFrom(module=str(module), names=names, level=0):
                inner = {f"{module}.{alias.name}" for alias in names}
                found |= (inner & modules) | ({module} if inner - modules else set())
            case ast.ImportFrom(level=level) if level:
                pytest.fail(f"{source.path}:{node.lineno}: name the module in full instead of by dots")
    return found & modules
