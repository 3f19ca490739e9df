"""The marks round calls: rendered text in which names and arguments are masked, compared and made a pattern.

A mask stands for a part that differs from call to call. Marks are compared token by token, so that none is cut in
pieces where two of them begin or end alike; a token that differs in a number, or in the name of a type, becomes a mask.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from unicodedata import category

from parsing.framing import BAR
from parsing.grammar import BLANK, STRAY, S, quoted

NAME, ID, PAYLOAD, KEY = "\ue000", "\ue001", "\ue002", "\ue003"
VALUE, NUMBER, KIND, BOOL = "\ue004", "\ue005", "\ue006", "\ue007"
MASKS = NAME + ID + PAYLOAD + KEY + VALUE + NUMBER + KIND + BOOL
_WHOLE = f"{PAYLOAD}{VALUE}"  # masks that never stand inside a tag
_TOKEN = re.compile(rf"<[^<>{_WHOLE}]*>|\[[^\[\]{_WHOLE}]*\]|\s+|[{MASKS}]|[^\s<\[{MASKS}]+|.", re.DOTALL)
_PART = re.compile(rf"\d+|[{MASKS}]|[^\W\d{MASKS}]\w*|\s+|.", re.DOTALL)
_KINDS = frozenset(
    ["string", "integer", "number", "boolean", "object", "array", "null", "str", "int", "float", "bool", "list", "dict"]
)
_TRUTHS = frozenset(("true", "false"))
_FENCE = re.compile(r"`{3,}\w*")
_PIECE = re.compile(
    rf"(?P<quote>[\"'])(?P<quoted>[{NAME}{KEY}])(?P=quote)|(?P<mask>[{MASKS}])|(?P<space>\s+)|(?P<fence>`{{3,}}\w*)|(?P<rest>.)",
    re.DOTALL,
)
_SPECIAL = re.compile(r"[|_:\]]|[^\x00-\x7f]|[A-Z]{3}|(?i:tool|func|call|invoke|action|plugin)")
_LETTERS = re.compile(r"[^\W\d_]")
_SYMBOLS = ("So", "Ps", "Pe")  # beyond ASCII: flowers and odd brackets
Tokens = Sequence[str]


@dataclass(frozen=True)
class Outline:
    """The marks of one call, round all calls of a reply, and between two of them. Masked text."""

    outer_open: str
    item_open: str
    item_close: str
    outer_close: str
    separator: str = ""

    @property
    def opener(self) -> str:
        """The marks that a call must begin with: those of all calls too, where its own tell nothing."""
        return self.item_open if is_explicit(self.item_open) else self.outer_open + self.item_open

    @property
    def closers(self) -> tuple[str, ...]:
        """The marks that end a call, each of which may."""
        found = (self.item_close,) if self.item_close else (self.separator, self.outer_close)
        return tuple(each for each in found if each)


def tokens(masked: str) -> list[str]:
    return _TOKEN.findall(masked)


def outline(single: str, parallel: str) -> Outline | None:
    """The marks round the payloads of one call, and of two; "" where two are not written. None if they differ."""
    lead, _, trail = single.partition(PAYLOAD)
    pieces = parallel.split(PAYLOAD)
    if len(pieces) == 2:  # one block of payloads
        return _trimmed(lead, "", "", trail, "")
    if len(pieces) != 3:
        return _trimmed("", lead, trail, "", "")
    before, middle, behind = map(tokens, (lead, pieces[1], trail))
    item_close = common_start(middle, behind)
    rest = middle[len(item_close) :]
    item_open = common_end(before, rest)
    separator = rest[: len(rest) - len(item_open)]
    return _trimmed(
        "".join(before[: len(before) - len(item_open)]),
        "".join(item_open),
        "".join(item_close),
        "".join(behind[len(item_close) :]),
        "".join(separator),
    )


def _trimmed(*parts: str) -> Outline:
    outer_open, item_open, item_close, outer_close, separator = parts
    return Outline(outer_open.strip(), item_open.strip(), item_close.strip(), outer_close.strip(), separator.strip())


def common_end(first: Tokens, second: Tokens) -> list[str]:
    """The tokens with which both end, merged."""
    return common_start(first[::-1], second[::-1])[::-1]


def common_start(first: Tokens, second: Tokens) -> list[str]:
    found = []
    for one, other in zip(first, second, strict=False):
        if (merged := _merged(one, other)) is None:
            break
        found.append(merged)
    return found


def _merged(one: str, other: str) -> str | None:
    """One token for both; None if they differ in more than a number or a type."""
    if one == other:
        return one
    first, second = _PART.findall(one), _PART.findall(other)
    if one.isspace() and other.isspace():
        return one
    if len(first) != len(second):
        return None
    parts = [_merged_part(*pair) for pair in zip(first, second, strict=True)]
    return None if None in parts else "".join(part or "" for part in parts)


def _merged_part(one: str, other: str) -> str | None:
    if one == other:
        return one
    for mask, fits in ((NUMBER, str.isdecimal), (KIND, _KINDS.__contains__), (BOOL, _TRUTHS.__contains__)):
        if all(each == mask or fits(each) for each in (one, other)):
            return mask
    return None


def is_explicit(masked: str) -> bool:
    """Return whether a mark stands in this text that nothing but a call has."""
    marks = [token for token in tokens(masked) if token[0] in "<[" and token[1:2] != "/" and len(token) > 3]
    named = (len(_LETTERS.findall(token)) > (3 if set(MASKS) & set(token) else 0) for token in marks)
    return any(named) or any(not each.isascii() and category(each) in _SYMBOLS for each in masked)


def is_special(masked: str) -> bool:
    """Return whether a mark stands in this text that is no element of HTML: any name behind it is that of a tool."""
    return is_explicit(masked) and bool(_SPECIAL.search("".join(each for each in masked if each not in MASKS)))


def pattern(masked: str, group: str = "name") -> str:
    """A pattern for this text: space as the model likes, and the first name and key in groups."""
    found: list[str] = []
    before = ""
    named = fenced = False
    for match in _PIECE.finditer(masked):
        kind, text = match.lastgroup or "", match.group()
        if kind == "quote" or kind == "quoted":
            kind, text = "quoted", match["quoted"]
        if before and _loose(before, match.group()[0]) and found[-1] != S:
            found.append(S)
        mask = text == NAME and named
        behind = masked[match.end() : match.end() + 1]
        kind = "rest" if kind == "fence" and fenced else kind  # several that may be missing match in too many ways
        fenced = fenced or kind == "fence"
        found.append(_piece(kind, text, "" if mask else group, (before, behind), first=not found))
        named = named or text == NAME
        before = match.group()[-1]
    return "".join(found)


def _loose(before: str, behind: str) -> bool:
    """Return whether space may stand between these characters although none does."""
    return (
        not before.isspace() and not behind.isspace() and (before in ">]" or (behind in "<[" and before not in "<[]"))
    )


def _piece(kind: str, text: str, group: str, around: tuple[str, str], *, first: bool) -> str:
    match kind:
        case "quoted":
            return quoted(group if text == NAME else "key") if group else r"[\"'][^\"'<>]{0,200}[\"']"
        case "mask":
            return _mask(text, group, around[1])
        case "space":
            between_words = all(each.isalnum() or each in MASKS for each in around)
            return r"\s{1,20}" if between_words and "\n" not in text else S
        case "fence":
            return rf"(?:`{{3,20}}|~{{3,20}}){re.escape(text.strip('`'))}" if first else r"(?:`{3}\w{0,20})?"
    return {"｜": BAR, "▁": BLANK}.get(text) or re.escape(text)


def _mask(text: str, group: str, behind: str) -> str:
    match text:
        case _ if text == NAME:
            name = r"[^\s<>\"'`=(){}\[\],;|｜]{1,128}"
            return rf"[\"']?(?P<{group}>{name})[\"']?" if group else name
        case _ if text == KEY:
            end = re.escape(behind) if behind and not behind.isspace() else ""
            return rf"(?P<key>[^\r\n{end}]{{1,200}})" + ("" if end else r"(?=\r?\n)")
    return {
        ID: r"[\w.:-]{0,80}",
        NUMBER: r"\d{1,9}",
        KIND: r"(?P<kind>[\w-]{1,40})",
        BOOL: r"(?P<string>true|false)",
    }[text]


def closer_pattern(marks: Outline) -> str:
    """A pattern for the closer of a call: as it is, without its fence, or without the mark that ends the arguments."""
    found = []
    for closer in marks.closers:
        text = _FENCE.sub("", closer).strip() if closer.startswith("```") else closer
        fence = rf"{S}(?:`{{3,20}})?{S}" if text != closer else S
        found.append(rf"{fence}{pattern(text)}" if text else rf"{S}(?:`{{3,20}}(?=[^`])|~{{3,20}}(?=[^~]))")
        rest = "".join(tokens(text)[1:]).strip()
        if rest[:1] in ("<", "[") and not text.startswith(rest):  # else a piece may end where the rest does
            found.append(rf"{S}{pattern(rest)}")
    return "|".join(found)


def opener_pattern(marks: Outline, group: str, tail: str) -> tuple[str, str]:
    """The patterns of a call's opener, and of that of a further call in the same block ("" if it has none)."""
    outer, item = pattern(marks.outer_open), pattern(marks.item_open, group)
    if not item:
        return f"{outer}{S}{tail}", ""
    between = _between(marks.separator) if marks.separator.strip(",; \n") else ""
    wrap = rf"(?P<wrap>{outer}){S}{STRAY}" if outer else between
    if outer and is_explicit(marks.item_open):
        wrap = f"(?:{wrap})?"
    return f"{wrap}{item}{S}{tail}", f"{S}[;,]?{S}{between}{item}{S}{tail}"


def _between(separator: str) -> str:
    """A pattern for what may stand before a further call: without its first mark where the end of a call has that."""
    first, *rest = tokens(separator)
    behind = "".join(rest).strip()
    begins = pattern(first) + S
    return f"(?:(?:{begins})?{pattern(behind)}{S})?" if behind else f"(?:{begins})?"
