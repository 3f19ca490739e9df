"""Spans: the parts of a call's arguments that repeat a text which the model has read."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import asdict

SourceKind = Literal["person", "operator", "client", "result", "memory", "document", "file", "session", "model"]
"""`person`: the own words of the person; `operator`: prompt and settings of the server; `client`: the text of a client;
`model`: text of a model that others have given (a task of a helper, a summary); the others are what they say."""


class Span(Struct, frozen=True):
    """Characters `start` to `end` of one text in the arguments, and where they come from.

    `argument` is the JSON pointer of the text (`/to/0`), `source` the id of the call, memory or document, `place` the
    same in words for people. `untrusted`: that text is untrusted, or derives from such text. `exact`: it stands there
    to the letter, but for case and white space, or is the same number or address.
    """

    argument: str
    start: int
    end: int
    kind: SourceKind
    source: str
    place: str
    untrusted: bool
    exact: bool = False


def as_fields(spans: Iterable[Span]) -> list[dict[str, Any]]:
    """Return the spans as JSON objects."""
    return list(map(asdict, spans))
