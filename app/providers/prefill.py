"""What a model's template writes in front of its answers, where the server shows its prompts: a hint for the parser.

Where the prompt begins a thought, most servers send it apart, or repeat its beginning. Their text does not start in a
thought: taken for one, an answer without thoughts would be hidden whole. So the model is asked for a few words first.
"""

from __future__ import annotations

import re
from typing import Any

from app.provider import Ability
from app.providers.http import NoAnswer
from app.providers.served import Endpoint
from parsing.framing import THINKING_PROMPT

PLACE = "/apply-template"
WORD = "dragoman"
MOST = 200  # characters
FEW = 8  # tokens
APART = "the server sends thoughts apart"
REPEATED = "the server repeats it"


async def prefilled(endpoint: Endpoint) -> Ability | None:
    """None where the server does not say. Raises NoAnswer, httpx2.HTTPError."""
    try:
        answer = await endpoint.ask("POST", f"{endpoint.root}{PLACE}", asked(endpoint.model, WORD))
    except NoAnswer as refusal:
        if refusal.lasting:
            return None
        raise
    suffix = suffix_in(answer)
    if suffix is None:
        return None
    if not begins_thought(suffix):
        return hint(suffix)
    few = {"max_tokens": FEW, "temperature": 0, "stream": False}
    answer = await endpoint.ask("POST", f"{endpoint.base_url}/chat/completions", asked(endpoint.model, "Hi") | few)
    return as_it_comes(suffix, answer)


def asked(model: str, text: str) -> dict[str, Any]:
    return {"model": model, "messages": [{"role": "user", "content": text}]}


def suffix_in(answer: Any) -> str | None:
    match answer:
        case {"prompt": str(prompt)} if WORD in prompt:
            return prompt.rpartition(WORD)[2][-MOST:]
    return None


def begins_thought(suffix: str) -> bool:
    return re.search(THINKING_PROMPT, suffix.rstrip()) is not None


def as_it_comes(suffix: str, answer: Any) -> Ability | None:
    """The hint, for a server that answers so after a prompt that begins a thought; None if that does not show it."""
    match answer:
        case {"choices": [{"message": {"reasoning_content": str(thought)}}, *_]} if thought:
            return hint("", APART)
        case {"choices": [{"message": {"content": str(text)}}, *_]} if text.strip():
            opener = suffix.split()[-1]
            return hint("", REPEATED) if text.lstrip().startswith(opener) else hint(suffix)
    return None


def hint(suffix: str, why: str = "") -> Ability:
    return Ability("prompt_suffix", suffix, "server", f"{PLACE}; {why}" if why else PLACE)
