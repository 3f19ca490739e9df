"""Detect the text that a chat template puts in front of an answer, where the server can render prompts (llama.cpp).

If the prompt opens a thinking block, most servers separate the reasoning or repeat the opening tag, so that the text
does not start inside the block. A wrong guess would hide whole answers, so the model is made to think one word first.
"""

from __future__ import annotations

from typing import Any

from app.core.provider import Ability
from app.models.http.served_model import ServedModel
from parsing.framing import reasoning_open_in

PLACE = "/apply-template"
WORD = "dragoman"
MOST = 200  # characters
ONE_WORD = {"grammar": f'root ::= "{WORD}"', "max_tokens": 8, "stream": False}
SEPARATE = "the server separates the reasoning"
REPEATED = "the server repeats the opening tag"


async def prefill_hint(endpoint: ServedModel) -> Ability | None:
    """Return the hint for the parser; None if the server cannot render prompts. Raises NoAnswer if it may later."""
    suffix = suffix_in(await endpoint.ask_if_supported("POST", f"{endpoint.root}{PLACE}", request_body(endpoint.model)))
    if suffix is None or not opens_thinking(suffix):
        return None if suffix is None else hint(suffix)
    url = f"{endpoint.base_url}/chat/completions"
    return hint_by_answer(suffix, await endpoint.ask_if_supported("POST", url, request_body(endpoint.model) | ONE_WORD))


def request_body(model: str) -> dict[str, Any]:
    return {"model": model, "messages": [{"role": "user", "content": WORD}]}


def suffix_in(shown: Any) -> str | None:
    match shown:
        case {"prompt": str(prompt)} if WORD in prompt:
            return prompt.rpartition(WORD)[2][-MOST:]
    return None


def opens_thinking(suffix: str) -> bool:
    opened = reasoning_open_in(suffix)
    return opened is not None and not opened.answer


def hint_by_answer(suffix: str, answer: Any) -> Ability | None:
    """Return the hint, by the field that the generated word arrived in; None if it is missing."""
    match answer:
        case {"choices": [{"message": {"reasoning_content": str(thought)}}, *_]} if WORD in thought:
            return hint("", SEPARATE)
        case {"choices": [{"message": {"content": str(text)}}, *_]} if text.strip().endswith(WORD):
            before = text.partition(WORD)[0].strip()
            return hint("", REPEATED) if opens_thinking(before) else None if before else hint(suffix)
    return None


def hint(suffix: str, why: str = "") -> Ability:
    return Ability("prompt_suffix", suffix, "server", f"{PLACE}; {why}" if why else PLACE)
