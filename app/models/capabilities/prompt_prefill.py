"""What a model's template writes in front of its answers, where the server shows its prompts: a hint for the parser.

Where the prompt begins a thought, most servers send it apart, or repeat its beginning. Their text does not start in a
thought: taken for one, an answer without thoughts would be hidden whole. So the model is made to think one word first.
"""

from __future__ import annotations

import re
from typing import Any

from app.core.provider import Ability
from app.models.http.client import NoAnswer
from app.models.http.served_model import ServedModel
from parsing.framing import THINKING_PROMPT

PLACE = "/apply-template"
WORD = "dragoman"
MOST = 200  # characters
ONE_WORD = {"grammar": f'root ::= "{WORD}"', "max_tokens": 8, "stream": False}
APART = "the server sends thoughts apart"
REPEATED = "the server repeats it"


async def prefill_hint(endpoint: ServedModel) -> Ability | None:
    """None where the server does not say. Raises NoAnswer if it may later, httpx2.HTTPError."""
    suffix = suffix_in(await post_if_supported(endpoint, f"{endpoint.root}{PLACE}", request_body(endpoint.model)))
    if suffix is None or not begins_thought(suffix):
        return None if suffix is None else hint(suffix)
    url = f"{endpoint.base_url}/chat/completions"
    return hint_by_answer(suffix, await post_if_supported(endpoint, url, request_body(endpoint.model) | ONE_WORD))


async def post_if_supported(endpoint: ServedModel, url: str, body: dict[str, Any]) -> Any:
    """None if there is none. Raises NoAnswer if there may be one later, httpx2.HTTPError."""
    try:
        return await endpoint.ask("POST", url, body)
    except NoAnswer as refusal:
        if not refusal.lasting:
            raise
        return None


def request_body(model: str) -> dict[str, Any]:
    return {"model": model, "messages": [{"role": "user", "content": WORD}]}


def suffix_in(shown: Any) -> str | None:
    match shown:
        case {"prompt": str(prompt)} if WORD in prompt:
            return prompt.rpartition(WORD)[2][-MOST:]
    return None


def begins_thought(suffix: str) -> bool:
    return re.search(THINKING_PROMPT, suffix.rstrip()) is not None


def hint_by_answer(suffix: str, said: Any) -> Ability | None:
    """The hint, by how the word came that the model has thought; None where it did not."""
    match said:
        case {"choices": [{"message": {"reasoning_content": str(thought)}}, *_]} if WORD in thought:
            return hint("", APART)
        case {"choices": [{"message": {"content": str(text)}}, *_]} if text.strip().endswith(WORD):
            before = text.partition(WORD)[0].strip()
            return hint("", REPEATED) if begins_thought(before) else None if before else hint(suffix)
    return None


def hint(suffix: str, why: str = "") -> Ability:
    return Ability("prompt_suffix", suffix, "server", f"{PLACE}; {why}" if why else PLACE)
