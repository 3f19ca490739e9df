"""An answer that is to be JSON: what a model writes around it goes, however the text is cut."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.runs.relay.json_answer import JSONAnswer

CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
FORMAT: dict[str, Any] = {"type": "json_schema", "json_schema": {"name": "city", "schema": CITY}}
OSLO = '{"city": "Oslo {\\"} \\\\"}'
ANSWERS = {
    "alone": (OSLO, OSLO),
    "white space before": (f"\n {OSLO}", OSLO),
    "words behind": (f"{OSLO}\n\nHope this helps {{}}", OSLO),
    "in a fence": (f"Here it is:\n```json\n{OSLO}\n```\nDone.", OSLO),
    "brackets before": (f"[Note] [1] It is {{here}}: {OSLO}", OSLO),
    "names without quotes": ("{city: 'Oslo'}", '{"city": "Oslo"}'),
    "white space in it": ('{  \n "city": "Oslo"}', '{  \n "city": "Oslo"}'),
    "white space without end": ("{" + " " * 200, "{" + " " * 200),
    "no JSON at all": ("I cannot say.", "I cannot say."),
    "cut": ('{"city": "Os', '{"city": "Os'),
}


def written(pieces: list[str]) -> str:
    answer = JSONAnswer(FORMAT)
    return "".join([*map(answer.feed, pieces), answer.close()])


@pytest.mark.parametrize("name", ANSWERS)
def test_only_the_json_comes_out_wherever_the_text_is_cut(name: str) -> None:
    text, wanted = ANSWERS[name]
    for cut in range(len(text) + 1):
        assert written([text[:cut], text[cut:]]) == wanted
    assert written([*text]) == wanted


def test_an_object_comes_out_as_it_is_written() -> None:
    answer = JSONAnswer(FORMAT)
    assert [answer.feed(piece) for piece in ('{"ci', 'ty": ', '"Oslo"', "} and", " more")] == [
        *('{"ci', 'ty": ', '"Oslo"', "}", "")
    ]


def test_an_array_comes_out_where_the_format_allows_one() -> None:
    wanted = {"type": "json_schema", "json_schema": {"name": "cities", "schema": {"type": "array"}}}
    answer = JSONAnswer(wanted)
    assert [answer.feed(piece) for piece in ("[", '"Oslo"', "] and", " more")] == ["", '["Oslo"', "]", ""]


@given(st.dictionaries(st.text(), st.recursive(st.text() | st.integers(), st.lists)), st.data())
def test_any_object_comes_out_whole(value: dict[str, Any], data: st.DataObject) -> None:
    text = json.dumps(value)
    cut = data.draw(st.integers(0, len(text)))
    assert written([text[:cut], text[cut:], " or so"]) == text
