"""Recognise error texts about a prompt that is too long, and extract the context limit."""

from __future__ import annotations

import re

from tools.base.patterns import lazy_pattern

READ = 2000  # characters: some servers append the whole request to the message
SMALLEST, LARGEST = 256, 10**8  # tokens: a number beyond these is something else

# Phrases without a number, or with one that is not the limit.
PHRASES = (
    "context_length",
    "context length",
    "context size",
    "context_size",
    "context window",
    "context_window",
    "context limit",
    "too many tokens",
    "prompt is too long",
    "prompt too long",
    "input is too long",
    "exceeds max length",
    "reduce the length of the messages",
)
_LIMIT = r"(\d[\d,]*)"
# The group of the first match is the limit; most messages also contain the length of the prompt.
LIMITS = tuple(
    lazy_pattern(pattern, re.IGNORECASE)
    for pattern in (
        rf'"n_ctx"\s*:\s*{_LIMIT}',
        rf"{_LIMIT} maximum context length",
        rf"context[ _](?:length|size|window)\s*(?:is|of)?\s*(?:only)?\s*\(?{_LIMIT}",
        rf"tokens\s*>\s*{_LIMIT}\s*max",
        rf"\d\s*\+\s*\d+\s*>\s*{_LIMIT}",
        rf"maximum prompt length is {_LIMIT}",
        rf"maximum number of tokens allowed\s*\(?{_LIMIT}",
        rf"model token limit:\s*{_LIMIT}",
        rf"token count of \d[\d,]* exceeds the limit of {_LIMIT}",
        rf"configured limit of {_LIMIT} tokens",
        rf"maximum allowed input length of {_LIMIT}",
        rf"`max_new_tokens` must be <= {_LIMIT}",
        rf"`inputs` must have less than {_LIMIT} tokens",
        rf"range of input length should be \[\d+,\s*{_LIMIT}\]",
        rf"tokens in the prompt cannot exceed {_LIMIT}",
        rf"max size:\s*{_LIMIT} tokens",
    )
)


def is_too_long(text: str) -> bool:
    """Return whether the text says that the prompt is too long for the model."""
    lowered = text.lower()
    return any(word in lowered for word in PHRASES) or limit_in(text) is not None


def limit_in(text: str) -> int | None:
    """Return the context limit in tokens if the text contains it."""
    text = text[:READ]
    for pattern in LIMITS:
        if found := pattern.search(text):
            limit = int(found[1].replace(",", "")[:12])
            return limit if SMALLEST <= limit <= LARGEST else None
    return None
