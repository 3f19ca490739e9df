"""A dialect is one row: whatever its opener begins with, wherever it may stand, nothing else has to know it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from parsing import Call, ParseEvent, Parser, parse
from parsing.dialects import DIALECTS, FENCED, ROWS, TOOL_ELEMENT, Dialect, Rows
from parsing.grammar import JSON, LOOSE_NAME, OBJECT, OFFERED, S
from parsing.matching import compiled, first_characters, first_mark
from parsing.openers import Openers
from parsing.parser import gather
from parsing.readers import bodies
from parsing.readers.markup import Markup
from tests.support.parsing.cases import with_joined_text

TOOLS: dict[str, dict[str, Any]] = {
    "note": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
}
CALL = '{"name": "note", "arguments": {"text": "a ⟧ b"}}'
CUT_CALL = '{"name": "note", "arguments": {"text": "a ⟧ b"'  # its closer proves that it has ended
TAGS = Markup(opens=r"«(?P<key>\w{1,40})=", shuts="»", ends="⟧", after="⟦")


def row(opens: str, body: Any = bodies.json_calls, **more: Any) -> Dialect:
    return Dialect("new", "adhoc_tag", "nobody's", opens, body, **more)


NOTE_ARGUMENTS = '{"text": "a ⟧ b"}'
MARK = row(rf"⟦call⟧{S}{JSON}", shuts="⟦/call⟧")
LINE = row(rf"%%{OFFERED}{S}{OBJECT}", bodies.named_json)
FIRST = row(rf"§{OFFERED}{S}{OBJECT}", bodies.named_json)
# what is new -> the row, and a message with a call
MARKED = {
    "a mark of another alphabet": (MARK, f"So: ⟦call⟧{CALL}⟦/call⟧ done"),
    "its code": (row(rf"\u27e6call\u27e7{JSON}", shuts="⟦/call⟧"), f"So: ⟦call⟧{CALL}⟦/call⟧ done"),
    "one of two marks": (row(rf"[⟦⟪]call⟧{JSON}", shuts="⟦/call⟧"), f"So: ⟪call⟧{CALL}⟦/call⟧ done"),
    "a common mark": (row(rf"@@call{S}{JSON}", shuts="@@end"), f"So: me@home @@call {CALL}@@end done"),
    "a word": (row(rf"CALL:{S}{JSON}", shuts=";;"), f"So: it CALLS. CALL: {CALL};; done"),
    "braces": (
        row(r"\{\{(?P<name>\w{1,40})[|](?=\{)", bodies.named_json, shuts=r"\}\}"),
        f"So: {{{{note|{NOTE_ARGUMENTS}}}}} done",
    ),
    "a closer that proves an end": (MARK, f"So: ⟦call⟧{CUT_CALL}⟦/call⟧ done"),
    "tags": (row(rf"⟦call {LOOSE_NAME}⟧", bodies.tagged(TAGS)), "So: ⟦call note⟧«text=a ⟧ b»⟧ done"),
    "raw text": (row(rf"⟦call {LOOSE_NAME}⟧", bodies.text_until("⟦/call⟧")), "So: ⟦call note⟧a ⟧ b⟦/call⟧ done"),
}
LINES = {
    "a line's mark": (LINE, f"So: %%\n%%note {NOTE_ARGUMENTS}\ndone"),
    "a line's word": (
        row(rf"Invoking {OFFERED}{S}{OBJECT}", bodies.named_json),
        f"So:\nInvoking note {NOTE_ARGUMENTS}\ndone",
    ),
}
WHOLE = {
    "a message's mark": (FIRST, f"§note {NOTE_ARGUMENTS}"),
    "a message's word": (row(rf"Using:{S}{OFFERED}{S}{OBJECT}", bodies.named_json), f"Using: note {NOTE_ARGUMENTS}"),
}
ALONE = Rows(marked=(), rest=(), headers=(), lines=(), whole=())
PLACED = [
    *(pytest.param(replace(ALONE, marked=(new,)), text, id=name) for name, (new, text) in MARKED.items()),
    *(pytest.param(replace(ALONE, rest=(new,)), text, id=f"{name}, rest") for name, (new, text) in MARKED.items()),
    *(pytest.param(replace(ALONE, lines=(new,)), text, id=name) for name, (new, text) in LINES.items()),
    *(pytest.param(replace(ALONE, whole=(new,)), text, id=name) for name, (new, text) in WHOLE.items()),
]


def events(pieces: list[str], openers: Openers) -> list[ParseEvent]:
    parser = Parser(TOOLS, openers=openers)
    found = [event for piece in pieces for event in parser.feed(piece)]
    return with_joined_text([*found, *parser.close()])


@pytest.mark.parametrize(("rows", "text"), PLACED)
def test_a_row_with_a_new_first_character_is_read_in_every_chunking(rows: Any, text: str) -> None:
    openers = Openers(rows)
    whole = events([text], openers)
    parsed = gather(whole)
    assert parsed.calls == [Call(0, "note", {"text": "a ⟧ b"}, "new")] and not parsed.rejected
    assert "".join(parsed.content.split()).endswith("done" if "done" in text else "")
    assert "note" not in parsed.content
    assert events(list(text), openers) == whole
    for size in (2, 3, 5):
        assert events([text[at : at + size] for at in range(0, len(text), size)], openers) == whole
    for cut in range(1, len(text)):
        assert events([text[:cut], text[cut:]], openers) == whole, cut


def test_new_rows_stand_beside_the_others() -> None:
    rows = replace(ROWS, marked=(*ROWS.marked, MARK), lines=(*ROWS.lines, LINE), whole=(*ROWS.whole, FIRST))
    openers = Openers(rows)
    for text in (f"So: ⟦call⟧{CALL}⟦/call⟧ done", f"So:\n%%note {NOTE_ARGUMENTS}\ndone", f"§note {NOTE_ARGUMENTS}"):
        assert len(gather(events(list(text), openers)).calls) == 1
        assert parse(text, TOOLS).content == text
    # and a message that is cut inside the new mark shows no half of it
    parsed = gather(events(["So: ⟦cal"], openers))
    assert (parsed.content, len(parsed.rejected)) == ("So: ", 1)


@pytest.mark.parametrize("new", [each for each in DIALECTS if each.opens], ids=lambda new: f"{new.family}-{new.name}")
def test_where_a_row_begins_is_known(new: Dialect) -> None:
    """Only a row for whole messages may begin with just any word: the others would be tried at each letter."""
    assert first_characters(new.opens)
    assert new in ROWS.whole or not compiled(new.opens).match("ꙮ", partial=True)


def test_rows_without_an_opener_are_made_of_the_tools() -> None:
    assert [each for each in DIALECTS if not each.opens] == [TOOL_ELEMENT, FENCED]


def test_what_ends_raw_text_begins_with_one_character() -> None:
    assert first_mark(r"(?=\n\s{0,20}Observation:)") == "\n"
    with pytest.raises(ValueError, match="must begin with one character"):
        first_mark("</call>|END")
