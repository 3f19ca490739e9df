"""How servers count tokens: each kind's own form, in batches, and what is made of counts that cannot be true."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.models.capabilities.abilities import AbilityCache
from app.models.capabilities.server_counts import BATCH_CHARACTERS, BATCH_TEXTS, batches, llama_counts, vllm_counts
from tests.support.models.abilities import MISSING, SLOT, endpoint, json_values, models, said
from tests.support.models.upstream import Act, answer

pytestmark = pytest.mark.anyio
TEXTS = ["one", "", "two words", "\ud800 é"]


async def test_llama_cpp_counts_many_texts_in_one_request() -> None:
    tokens = said({"tokens": [5, -1, -1, 6, 7, -1, 8, 9, 10, -1]})
    async with endpoint({"/props?model=m": SLOT, "/tokenize": tokens}) as (one, server):
        assert await AbilityCache().count(one, TEXTS) == [1, 0, 2, 3]
    [asked] = [asked for asked in server.asked if asked.path == "/tokenize"]
    assert asked.json["content"] == ["one", -1, "", -1, "two words", -1, "\ufffd é", -1]


async def test_vllm_counts_one_text_at_a_time() -> None:
    acts = {"/v1/models": models(max_model_len=8192), "/tokenize": said({"count": 3, "tokens": [1, 2, 3]})}
    async with endpoint(acts) as (one, server):
        assert await AbilityCache().count(one, TEXTS) == [3, 3, 3, 3]
        assert await AbilityCache().count(one, []) == []
    assert sorted(asked.json["prompt"] for asked in server.asked if asked.path == "/tokenize") == sorted(
        ["one", "", "two words", "\ufffd é"]
    )
    assert {asked.json["add_special_tokens"] for asked in server.asked if asked.path == "/tokenize"} == {False}


@pytest.mark.parametrize(
    ("act", "asked"),
    [
        (MISSING, 1),
        (said({"tokens": [1, 2, 3]}), 1),
        (said({"tokens": "many"}), 1),
        (answer("<html>"), 1),
        (said({"tokens": [-1] * 2}), 1),  # nothing at all in so long a text
        (said({"tokens": [*[5] * 9000, -1, 5, -1]}), 1),  # more than it has bytes
        (answer("{}", 503), 3),
        (answer("{}", 429), 3),
    ],
)
async def test_a_server_that_cannot_count_is_not_asked_again(act: Act, asked: int) -> None:
    async with endpoint({"/props?model=m": SLOT, "/tokenize": act}) as (one, server):
        abilities = AbilityCache()
        for _ in range(3):
            assert await abilities.count(one, ["a" * 1000, "b"]) is None
        assert await abilities.window(one) == 4096
    assert len([one for one in server.asked if one.path == "/tokenize"]) == asked


@given(
    st.lists(st.text(max_size=20) | st.integers(0, 2 * BATCH_CHARACTERS).map("x".__mul__), max_size=20),
    st.integers(1, 9),
)
def test_batches_hold_all_texts_in_order_and_not_too_many(texts: list[str], most: int) -> None:
    made = list(batches(texts, most))
    assert [text for batch in made for text in batch] == [
        text.encode("utf-16", "surrogatepass").decode("utf-16", "replace") for text in texts
    ]
    assert all(0 < len(batch) <= most for batch in made)
    assert all(sum(map(len, batch)) <= BATCH_CHARACTERS for batch in made if len(batch) > 1)
    assert len(list(batches(["x"] * 1000, BATCH_TEXTS))) == 4


@given(json_values("tokens", "count"))
def test_any_json_is_read_without_a_fault(value: Any) -> None:
    for counts in (llama_counts(value), vllm_counts(value)):
        assert counts is None or all(count >= 0 for count in counts)
