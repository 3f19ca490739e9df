"""A row of the table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from parsing.sink import Reader, Sink

Groups = dict[str, str | None]
Body = Callable[[Sink, Groups], Reader]


@dataclass(frozen=True)
class Dialect:
    """One form of one dialect; a dialect whose body has several forms has a row for each.

    `opens` is a pattern that ends where the call's body begins; look-aheads let the body decide between rows that
    share an opener. Its group `name` is the tool; a group `offered` too, but it must be the name of an offered tool,
    for forms that have no mark of their own. `more` begins a further call of the same block. `shuts` ends this row's
    call, besides the closers that all rows share. `members` are further dialects with the same opener and grammar.
    """

    name: str
    family: str
    models: str
    opens: str
    body: Body
    more: str = ""
    members: tuple[str, ...] = ()
    shuts: str = ""
