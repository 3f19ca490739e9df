"""An event whose JSON shows no secret has none: the search in it may stand for that in each of its texts."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.events import AgentEvent, Notice, ToolStarted, encode
from app.redaction.redactor import Redactor

SECRETS = (
    "hunter2-hunter2",
    'a"quoted\\secret"',
    "tab\tseparated-one",
    "pässwörd-und-mehr",
    "12345678901",
    "/+a=b&c%20d",
    "😀😁secret😂",
    "dgm_" + "aB3-_" * 8 + "xyz",
)
REDACTOR = Redactor(SECRETS)
PIECES = [
    spelling for one in SECRETS for spelling in (one, json.dumps(one)[1:-1], json.dumps(json.dumps(one)), one[:9])
]
TEXTS = st.lists(st.sampled_from([*PIECES, "a", '"', "\\", "\n", " ", "é", "\ud83d"]), max_size=4).map("".join)
VALUES = st.recursive(
    TEXTS | st.sampled_from([12345678901, True, None, 0.5]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(TEXTS, inner, max_size=2),
    max_leaves=4,
)
EVENTS = st.builds(Notice, TEXTS, TEXTS) | st.builds(
    lambda name, arguments: ToolStarted("c1", name, arguments, "native"), TEXTS, st.dictionaries(TEXTS, VALUES)
)


@given(EVENTS)
def test_clean_json_has_no_secret(event: AgentEvent) -> None:
    if REDACTOR.is_clean_json(encode(event)):
        assert REDACTOR.redact_value(event) is event


@pytest.mark.parametrize("secret", SECRETS)
def test_a_secret_is_found_in_json(secret: str) -> None:
    assert not REDACTOR.is_clean_json(encode(Notice("code", f"It is {secret}.")))
