"""A row of the table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from parsing.matching import Groups
from parsing.sink import Reader, Sink

# How the arguments of a family's dialects are written.
FAMILIES = {
    "json_sentinel": "JSON between marks",
    "header_json": "The name in a header, then JSON",
    "func_param": "Function and parameter tags",
    "invoke_param": "Invoke and parameter tags",
    "arg_pairs": "Tags for keys and values",
    "object_literal": "An object literal",
    "pythonic": "A Python call",
    "channel": "A message to a channel",
    "fenced": "A fenced block",
    "bare_json": "JSON as the whole message",
    "adhoc_tag": "Forms of their own",
}
Body = Callable[[Sink, Groups], Reader]


@dataclass(frozen=True)
class Dialect:
    """One form of one dialect; a dialect whose body has several forms has a row for each.

    `family` is a key of FAMILIES. `opens` is a pattern that ends where the call's body begins; look-aheads let the body
    decide between rows that share an opener. Its group `name` is the tool; a group `offered` too, but it must be the
    name of an offered tool, for forms that have no mark of their own. `more` begins a further call of the same block.
    `shuts` ends this row's call, besides the closers that all rows share. `wrapper` closes what the group `wrap` has
    opened: between the calls in it nothing is content. `pseudo` names what is written like a call of a tool and is the
    answer, or says that there is no call. `members` are further dialects with the same opener and
    grammar.
    """

    name: str
    family: str
    models: str
    opens: str
    body: Body
    more: str = ""
    members: tuple[str, ...] = ()
    shuts: str = ""
    wrapper: str = ""
    pseudo: tuple[str, ...] = ()
