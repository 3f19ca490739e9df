"""Names by which the words of runs are known when a client sends them back as the assistant's.

Clients of an API keep their conversations, and may change them: an answer in one may be untrusted text, if the model
had read such text or the client has put it there. So a run whose conversation held no untrusted text leaves names of
its answer and of its thoughts, digests that are kept as long as its session is. White space makes no difference.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from app.core.messages import Message

# No Idempotency-Key of a request can be one of these: theirs are printable.
ANSWER, THOUGHTS = "answer\n", "thoughts\n"


def names_of(messages: Sequence[Message]) -> list[str]:
    """Names of what the assistant's neighbouring messages say together; none if they say nothing."""
    answer = "".join(one.text if one.shown is None else one.shown for one in messages)
    said = {ANSWER: answer, THOUGHTS: "".join(one.reasoning for one in messages)}
    bare = {kind: "".join(text.split()) for kind, text in said.items()}
    return [f"{kind}{_digest(text)}" for kind, text in bare.items() if text]


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
