"""How model servers say that a prompt is too long, and how long it may be."""

from __future__ import annotations

import re

READ = 2000  # characters: some servers repeat the whole request behind their complaint
SMALLEST, LARGEST = 256, 10**8  # tokens: a number beyond these is something else

# Without a number, or next to one that is not the limit.
WORDS = (
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
# The first row that is found has the limit in its one group; the prompt's own length stands beside it in most of them.
LIMITS = tuple(
    re.compile(pattern, re.IGNORECASE)
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


def is_too_long(said: str) -> bool:
    """Does the server say that the prompt is too long for the model?"""
    lowered = said.lower()
    return any(word in lowered for word in WORDS) or limit_in(said) is not None


def limit_in(said: str) -> int | None:
    """How many tokens the model can read, where the complaint says so."""
    said = said[:READ]
    for pattern in LIMITS:
        if found := pattern.search(said):
            limit = int(found[1].replace(",", "")[:12])
            return limit if SMALLEST <= limit <= LARGEST else None
    return None
