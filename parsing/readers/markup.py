"""The tags of one grammar of raw values."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from functools import cached_property, lru_cache

import regex

from parsing.arguments import properties_of
from parsing.matching import compiled, first_characters, first_mark
from parsing.sink import Sink


class Framing(Enum):
    """The newlines round a value that belong to its tags, as the templates of the grammar write them."""

    EACH = 1  # one behind the opening tag, and one before the closing tag
    PAIR = 2  # the same, if both are there
    NONE = 3


@dataclass(frozen=True)
class Markup:
    """The tags of one grammar, as patterns.

    `opens` begins a value (groups: key, maybe kind or string), `shuts` ends one, `ends` ends the call; `after` may
    follow a whole call, and proves that an end inside a value is one. The end of a value counts only directly after
    `lead`. `nests` is a whole call quoted in a value: up to its end nothing ends the value. `framing`: the newlines
    round a value that are none of it.
    """

    opens: str
    shuts: str
    ends: str
    after: str
    lead: str = ""
    nests: str = ""
    framing: Framing = Framing.PAIR

    @cached_property
    def first(self) -> str:
        """The character that the end of a value begins with."""
        return first_mark(self.shuts)

    @cached_property
    def start(self) -> re.Pattern[str]:
        """The first characters of tags between values; the space before them, however written, is passed."""
        marks = first_characters(f"(?:{self.opens})|(?:{self.ends})|(?:{self.after})")
        visible = "".join(each for each in sorted(marks) if not each.isspace() and each != "\\")
        return re.compile(f"[{re.escape(visible)}]")

    @cached_property
    def shutting(self) -> regex.Pattern[str]:
        return compiled(self.shuts)

    @cached_property
    def passed(self) -> regex.Pattern[str]:
        """Closing tags too many and space that is written out: what may stand between values and means nothing."""
        return compiled(rf"(?:{self.shuts})|\\n")

    @cached_property
    def quoted(self) -> regex.Pattern[str] | None:
        return compiled(rf"(?P<inner>{self.nests})|(?P<outer>{self.ends})") if self.nests else None

    @cached_property
    def between(self) -> regex.Pattern[str]:
        return compiled(rf"\s{{0,200}}+(?:{self.opens}|(?P<end>{self.ends})|(?P<next>(?={self.after})))")

    @cached_property
    def closing(self) -> regex.Pattern[str]:
        """A value's end counts only before what may follow it; or its closing tag was forgotten."""
        return compiled(
            rf"(?:{self.shuts})(?=\s{{0,200}}(?:{self.opens}|{self.ends}|{self.after}))"
            rf"|(?=(?P<sibling>{self.opens}))|(?P<unclosed>(?=(?:{self.ends})\s{{0,200}}(?:{self.after})))"
        )

    @cached_property
    def final(self) -> regex.Pattern[str]:
        """The same at the end of the message, which may follow anything."""
        return compiled(
            rf"(?:{self.shuts})(?=\s*(?:\Z|{self.opens}|{self.ends}|{self.after}))"
            rf"|(?=(?P<sibling>{self.opens}))|(?P<unclosed>(?=(?:{self.ends})\s*(?:\Z|{self.after})))"
        )


def unframed(text: str, framing: Framing) -> str:
    """The value without the newlines that belong to the tags, and out of its CDATA."""
    stripped = text.strip()
    if stripped.startswith("<![CDATA[") and stripped.endswith("]]>"):
        return stripped[9:-3]
    start = 1 if text[:1] == "\n" else 2 if text[:2] == "\r\n" else 0
    inner = text[start:]
    end = len(inner) - (2 if inner.endswith("\r\n") else 1 if inner.endswith("\n") else 0)
    if framing is Framing.NONE or (framing is Framing.PAIR and not (start and end < len(inner))):
        return text
    return inner[:end]


@lru_cache(maxsize=256)
def _children(end: str, keys: tuple[str, ...], names: tuple[str, ...]) -> Markup:
    either = "|".join(re.escape(key) for key in keys) or "(?!)"
    tools = "|".join(re.escape(name) for name in names) or "(?!)"
    return Markup(
        opens=rf"<(?P<key>{either})>",
        shuts=rf"</(?:{either})>",
        ends=rf"</{end}\s?>",
        after=rf"<(?:{tools})>|</invoke>",
    )


def children_tags(name: str, sink: Sink, end: str = "") -> Markup:
    """The markup of a tool whose parameters are elements of their own, inside an element `end` or the tool's own."""
    return _children(end or re.escape(name), tuple(properties_of(sink.schema(name))), tuple(sink.tools))
