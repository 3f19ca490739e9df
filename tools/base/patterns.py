"""Regular expressions that are compiled when they are first used, or by `compile_all` once the server is up.

Compiling those of all modules would take a twentieth of a start.
"""

from __future__ import annotations

import re
from typing import Any, AnyStr, cast

_lazy: list[_LazyPattern] = []


def lazy_pattern(source: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """`re.compile`, delayed until an attribute of the pattern is used."""
    lazy = _LazyPattern(source, flags)
    _lazy.append(lazy)
    return cast("re.Pattern[AnyStr]", lazy)


def compile_all() -> None:
    """Compile the patterns of all modules that are loaded."""
    for lazy in _lazy:
        lazy.compiled()


class _LazyPattern:
    def __init__(self, source: str | bytes, flags: int) -> None:
        self.pattern = source
        self._flags = flags
        self._compiled: re.Pattern[str] | re.Pattern[bytes] | None = None

    def compiled(self) -> re.Pattern[str] | re.Pattern[bytes]:
        if self._compiled is None:
            self._compiled = re.compile(self.pattern, self._flags)
        return self._compiled

    def __getattr__(self, name: str) -> Any:
        value = getattr(self.compiled(), name)
        setattr(self, name, value)  # found at once from now on
        return value
