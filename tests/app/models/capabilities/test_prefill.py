"""What the prompt ends with, as a hint: only where the text really goes on from there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from app.core.provider import Ability
from app.models.capabilities.abilities import AGAIN_S, AbilityCache
from app.models.capabilities.prompt_prefill import ONE_WORD, PLACE, REPEATED, SEPARATE, WORD
from tests.support.models.abilities import MISSING, SLOT, endpoint, models, said
from tests.support.models.upstream import Act, answer

pytestmark = pytest.mark.anyio
THINKS = "<|im_end|>\n<|im_start|>assistant\n<think>\n"
PLAIN = "<|im_end|>\n<|im_start|>assistant\n"


def few(**message: Any) -> Act:
    return said({"choices": [{"message": {"role": "assistant"} | message}]})


def acts(suffix: str | None, words: Act = MISSING) -> dict[str, Act]:
    shown = MISSING if suffix is None else said({"prompt": f"<|im_start|>user\n{WORD}{suffix}"})
    return {
        "/v1/models": models(),
        "/props?model=m": SLOT,
        "/apply-template": shown,
        "/v1/chat/completions": words,
    }


# What the prompt ends with, what the model's thought comes as, and the hint.
HINTS: list[tuple[str | None, Act, str | None, str]] = [
    (PLAIN, MISSING, PLAIN, PLACE),
    ("<think>\n\n</think>\n\n", MISSING, "<think>\n\n</think>\n\n", PLACE),
    (THINKS, few(content=WORD), THINKS, PLACE),
    (THINKS, few(content="", reasoning_content=WORD), "", f"{PLACE}; {SEPARATE}"),
    (THINKS, few(content=f"<think>\n{WORD}"), "", f"{PLACE}; {REPEATED}"),
    (THINKS, few(content="I am well.", reasoning_content=""), None, ""),  # it did not do as it was made to
    (THINKS, few(content=f"I am {WORD}"), None, ""),
    (THINKS, few(content=None), None, ""),
    (THINKS, said([1]), None, ""),
    (THINKS, MISSING, None, ""),
    (THINKS, answer("{}", 503), None, ""),
    (None, MISSING, None, ""),
]


@pytest.mark.parametrize(("suffix", "words", "hint", "detail"), HINTS)
async def test_the_hint_is_what_the_text_goes_on_from(
    suffix: str | None, words: Act, hint: str | None, detail: str
) -> None:
    async with endpoint(acts(suffix, words)) as (one, server):
        abilities = AbilityCache()
        assert await abilities.window(one) == 4096  # whatever becomes of the hint
        found = abilities.find(one, "prompt_suffix")
        assert found == Ability("prompt_suffix", hint, "unknown" if hint is None else "server", detail)
    asked = [one.json for one in server.asked if one.path == "/v1/chat/completions"]
    assert len(asked) == (suffix == THINKS)
    assert all(ONE_WORD.items() <= one.items() for one in asked)


async def test_a_server_that_was_too_busy_to_show_it_is_asked_again() -> None:
    now = 0.0
    paths = acts(THINKS, answer("{}", 503))
    async with endpoint(paths) as (one, _):
        abilities = AbilityCache(clock=lambda: now)
        values: Sequence[object] = []
        for now in (0.0, AGAIN_S - 1, AGAIN_S):  # noqa: B007 (the clock)
            await abilities.window(one)
            values = [*values, abilities.find(one, "prompt_suffix").value]
            paths["/v1/chat/completions"] = few(content=WORD)
    assert values == [None, None, THINKS]
