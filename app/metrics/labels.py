"""Values of labels: only names that the operator has configured, or that are written in the code.

A client can ask for any model and call any tool, and a model can call what there is not: such a name would be a series
for ever, and may be a person's words. It counts as `other`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from re import ASCII

from msgspec import Struct, field

from app.metrics.recorder import OTHER
from tools.base.patterns import lazy_pattern

CODE = lazy_pattern(r"[a-z][a-z0-9_]{0,63}", ASCII)
METHODS = frozenset({"GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"})
Names = Callable[[], Collection[str]]


class KnownNames(Struct):
    """Functions that return the names of all configured models (as ENDPOINT/MODEL) and of all tools."""

    models: Names
    tools: Names
    _models: set[str] = field(default_factory=set)
    _tools: set[str] = field(default_factory=set)

    def model(self, name: str) -> str:
        """Return the name of a configured model, else OTHER."""
        return known(name, self._models, self.models)

    def tool(self, name: str | None) -> str:
        """Return the name of a tool that there is, else OTHER."""
        return known(name or "", self._tools, self.tools)


def known(name: str, seen: set[str], names: Names) -> str:
    """Return a name that is among the names, or was; else OTHER. `seen` are those found before."""
    if name in seen:
        return name
    if name not in names():
        return OTHER
    seen.add(name)
    return name


def code_label(code: str) -> str:
    """Return a code as it is written in the code base; else OTHER."""
    return code if CODE.fullmatch(code) else OTHER


def method_label(method: str) -> str:
    return method if method in METHODS else OTHER
