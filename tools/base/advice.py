"""The end of a message about a call that is for the model alone: what to do next, which a person does not do."""

from __future__ import annotations

from tools.base.patterns import lazy_pattern

_LONGEST = 400  # characters
_SENTENCES = (
    "Go on with|Answer (?:from what you know|here|with the plan)|Ask the person|Do not ask it again|Do it yourself|"
    r"Send the (?:whole )?call again|Make it again if|Call (?:\S+ )?again|Call it with these arguments|Decide yourself|"
    "Call one of the tools|Correct this and call|Use another tool|Find out what changes it|Check before doing it again|"
    "Try other words|Write the text in your answer|There are: |There are no tools: answer|recall_memory shows|"
    "list_sessions shows|Fetch that itself|If you want that page|It must match exactly|A result's own note has"
)
_PARTS = (
    "try (?:another page|again once)|look for a page|check the (?:name|address)|write it (?:as|in full)|use a URL|"
    "leave out what|give (?:an offset|the text)|add lines around|change one of them|wait until the person"
)
_ADVICE = lazy_pattern(rf"(?: (?:{_SENTENCES})|: (?:{_PARTS})|; use another site)[^\n]*\Z")


def advice_of(message: str) -> str:
    """Return the advice at the end of a message, with what is before it; empty if it ends otherwise."""
    found = _ADVICE.search(message[-_LONGEST:])
    return found[0] if found else ""
