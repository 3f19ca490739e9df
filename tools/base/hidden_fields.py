"""The text form of a struct whose secrets, or long fields, must not be in a log."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct


def repr_without(*hidden: str) -> Callable[[Struct], str]:
    """A `__repr__` that leaves these fields out."""

    def text(struct: Struct) -> str:
        shown = (f"{name}={getattr(struct, name)!r}" for name in struct.__struct_fields__ if name not in hidden)
        return f"{type(struct).__name__}({', '.join(shown)})"

    return text
