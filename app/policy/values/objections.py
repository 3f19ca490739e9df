"""Decide by value: a call may leave if every value of it that matters is the person's own.

    value that matters          whole in the person's words, or the only answer to a look-up with them
    heading                     made of whole phrases of the person and of trusted results
    content                     anything, if the call names a place that is the person's own; else their own phrases
    address, account or code    inside of any text: the person's own
    command                     never

It needs evidence for each of them: what has no proof is not the person's own. `Evidence` comes from above
(app.provenance.own_values), so that the rows of the gate stay pure functions of the call and of the run's policy.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import unescape
from itertools import chain, islice
from typing import Protocol

import regex
from msgspec import Struct

from app.policy.patterns import words_of
from app.policy.values.columns import MOST_LEAVES, PLACES, TooMany, Value, is_query, values_of
from parsing import Arguments
from tools.base.patterns import lazy_pattern
from tools.base.rights import Column, Risk
from tools.base.texts import shortened
from tools.builtin.outbound_effects import shown
from tools.tool import Tool

LONGEST = 50_000  # characters of all texts of a call: a longer one asks
MOST_CODES = 200  # addresses and codes in them
MOST_HEADINGS = 10
MOST_NAMED = 3  # values that a question names
_SHOWN = 80
_CODE = lazy_pattern(
    r"(?<![A-Za-z0-9+.-])[A-Za-z][A-Za-z0-9+.-]{1,20}://[^\s<>\"']{1,2000}"  # an address
    r"|(?<![\w.+%-])[\w.+%-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){0,8}"
    r"|(?<![\w-])(?:[\w-]{1,63}\.){1,8}[^\W\d_]{2,24}(?:[:/?#][^\s<>\"']{0,2000})?"
    r"|\b\d{1,3}(?:\.\d{1,3}){3}\b(?:[:/?#][^\s<>\"']{0,2000})?"
    r"|\b\d(?:[ -]?\d){6,40}\b"  # an account, a card, a telephone
    r"|\b[A-Z]{2}\d{2}(?: ?[A-Z0-9]{2,4}){2,9}\b"
    r"|\b(?=[A-Za-z_-]{0,40}\d)(?:[A-Za-z0-9_-]){8,200}\b"  # a code
    r"|(?<![A-Za-z0-9+/=_-])[A-Za-z0-9+/=_-]{32,2000}"  # something encoded
)
_UNSEEN = regex.compile(r"\p{Cf}")
_DATE = lazy_pattern(r"(?:19|20)\d\d-(?:0\d|1[0-2])-[0-3]\d(?:[T ]\d\d(?::\d\d){0,2})?|\d{1,2}-\d{1,2}-\d{2,4}")
_DELETES = "cancel clear delete destroy drop erase kick kill purge remove revoke terminate trash wipe"
_ENDINGS = "docx xlsx pptx doc xls ppt odt ods pdf txt csv png jpg jpeg gif svg html json xml yaml yml toml log"
_DELETING = frozenset(_DELETES.split())
_FILES = frozenset(_ENDINGS.split())
_REACHES = frozenset("@/:?#")  # in an address, and in the name of no file


class Evidence(Protocol):
    """Origins of values, as a run knows them. `words` are the person's, for a run that helps this one."""

    @property
    def words(self) -> Sequence[str]: ...

    def is_own(self, tool: Tool, value: Value) -> bool:
        """Return True if the whole value is the person's own."""

    def is_destination(self, tool: Tool, value: Value) -> bool:
        """Return True if a value that is the person's own comes from no untrusted text: others' words may go there."""

    def is_answer(self, text: str) -> bool:
        """Return True if the text stands in a trusted result of a look-up with the person's own values."""

    def is_phrase(self, text: str) -> bool:
        """Return True if the whole text stands in the person's words."""

    def is_composed(self, text: str) -> bool:
        """Return True if the text is made of whole phrases of the person and of trusted results."""

    def place_of(self, text: str) -> str:
        """Return the place outside of the person's words where the text stands, in words; empty if there is none."""


class Weighed(Struct, frozen=True):
    """Verdict on a call that was weighed before: the objection, empty if its values are the person's own."""

    objection: str
    words: Sequence[str] = ()


def objection_in_general(tool: Tool) -> str:
    """Return why no values let a call of the tool leave; empty if some do."""
    if tool.risk in (Risk.EXECUTE, Risk.ADMIN) or tool.handed:
        return f"{tool.name} does more than its arguments say."
    return f"{tool.name} deletes what its values name." if destroys(tool) else ""


def objection(tool: Tool, arguments: Arguments, evidence: Evidence | Weighed) -> str:
    """Return why values of a call are not the person's own, in sentences; empty if all of them are."""
    if isinstance(evidence, Weighed):
        return evidence.objection
    if why := objection_in_general(tool):
        return why
    try:
        values = values_of(tool, arguments)
    except TooMany:
        return f"The call has more than {MOST_LEAVES} values."
    if sum(len(one.value) for one in values if isinstance(one.value, str)) > LONGEST:
        return f"The call has more than {LONGEST:,} characters."
    if sum(one.column is Column.HEADING for one in values) > MOST_HEADINGS:
        return f"The call has more than {MOST_HEADINGS} headings."
    codes = set[str]()
    reasons = (why for one in values if (why := _why_not(tool, one, evidence, codes)))
    if others := list(islice(reasons, MOST_NAMED + 1)):  # the rest makes no difference
        return " ".join([*others[:MOST_NAMED], *["There are more."] * (len(others) > MOST_NAMED)])
    placed = any(one.column in PLACES and _is_destination(tool, one, evidence) for one in values)
    content = [one for one in values if one.column is Column.CONTENT]
    bound = [one for one in content if not placed or _is_order(tool, one)]
    foreign = next((one for one in bound if not evidence.is_phrase(str(one.value))), None)
    if foreign:
        why = "it can be an order" if placed else "no value of the call that is yours says where it goes"
        return f"{_named(foreign)} is not in your words, and {why}."
    if placed:
        return ""
    return "" if content or any(one.matters for one in values) else "None of its values is in your words."


def destroys(tool: Tool) -> bool:
    """Return True if a tool deletes, by its name or by its server's hint: a value says nothing of what is done."""
    return not _DELETING.isdisjoint(words_of(tool.name)) or bool(tool.origin and tool.origin.hints.destructive)


def _why_not(tool: Tool, one: Value, evidence: Evidence, codes: set[str]) -> str:
    """Return why a value is not the person's own; empty if it is, or need not be. `codes` are those looked at."""
    if one.column is Column.COMMAND:
        return f"{_named(one)} is a command."
    if one.column is Column.HEADING and not evidence.is_composed(str(one.value)):
        return _foreign(one, str(one.value), evidence)
    if one.matters and one.column is not Column.HEADING:
        return "" if evidence.is_own(tool, one) else _foreign(one, str(one.value), evidence)
    text = str(one.value)
    if one.column is Column.INSIDE or evidence.is_phrase(text):
        return ""
    for code in _codes(text):
        if code in codes:
            continue
        codes.add(code)
        part = Value(one.pointer, one.name, code, Column.ADDRESS)
        if len(codes) > MOST_CODES or not (evidence.is_own(tool, part) or evidence.is_answer(code)):
            return _foreign(one, code, evidence)
    return ""


def _is_destination(tool: Tool, one: Value, evidence: Evidence) -> bool:
    return one.column is Column.INSIDE or evidence.is_destination(tool, one)


def _is_order(tool: Tool, one: Value) -> bool:
    return tool.risk is not Risk.READ and is_query(one.name)


def _codes(text: str) -> Iterator[str]:
    """Yield the addresses, accounts and codes in a text."""
    plain = _UNSEEN.sub("", unescape(text))  # as a reader sees it
    for match in chain(_CODE.finditer(text), _CODE.finditer(plain) if plain != text else ()):
        found = match[0].rstrip(".,;:!?)-_")
        is_file = found.rpartition(".")[2].lower() in _FILES and _REACHES.isdisjoint(found)
        if not is_file and not _DATE.fullmatch(found):
            yield found


def _foreign(one: Value, text: str, evidence: Evidence) -> str:
    place = evidence.place_of(text)
    where = f"stands only in {place}" if place else "is not in your words, and its origin is not known"
    return f"{_named(one, text)} {where}."


def _named(one: Value, text: str = "") -> str:
    return f"`{shown(one.pointer.lstrip('/'))}` = {shortened(text or str(one.value), _SHOWN)}"
