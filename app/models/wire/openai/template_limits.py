"""Limits of single chat templates, learned from their refusals: most templates take what these refuse."""

from __future__ import annotations

import re
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from enum import StrEnum

from app.models.wire.attachment_parts import joined
from app.models.wire.client_history import EARLIER
from app.models.wire.openai.history import WireMessage
from tools.base.patterns import lazy_pattern


class TemplateLimit(StrEnum):
    """A limit of a template."""

    USER_FIRST = "user first"  # Gemma, Mistral, Llama 2, Qwen 3.5
    NO_SYSTEM = "no system"  # Gemma


# Sentences of templates, in which servers answer with 400 or 500.
REFUSALS = (
    (
        TemplateLimit.USER_FIRST,
        lazy_pattern(
            r"roles must alternate|no user (?:query|message)|must (?:start|begin) with a? ?user", re.IGNORECASE
        ),
    ),
    (TemplateLimit.NO_SYSTEM, lazy_pattern(r"system (?:role|message)s?\W+(?:is |are )?not supported", re.IGNORECASE)),
)


def limits_in(status: int, text: str) -> frozenset[TemplateLimit]:
    """Return the limits that a refusal names."""
    if status not in (400, 422, 500):
        return frozenset()
    return frozenset(limit for limit, sentence in REFUSALS if sentence.search(text))


def within_limits(sent: Sequence[WireMessage], limits: AbstractSet[StrEnum]) -> list[WireMessage]:
    """Return messages, of which at most the first is a system message, as a template with these limits takes them."""
    messages = list(sent)
    if TemplateLimit.NO_SYSTEM in limits and messages[:1] and messages[0]["role"] == "system":
        first = messages.pop(0) | {"role": "user"}
        if messages[:1] and messages[0]["role"] == "user":
            first["content"] = joined(first["content"], messages.pop(0)["content"])
        messages.insert(0, first)
    begins = int(bool(messages) and messages[0]["role"] == "system")
    if TemplateLimit.USER_FIRST in limits and messages and [one["role"] for one in messages[begins:][:1]] != ["user"]:
        messages.insert(begins, {"role": "user", "content": EARLIER})
    return messages
