"""The end of a message about a call that is for the model alone: what to do next, which a person does not do."""

from __future__ import annotations

from tools.base.patterns import lazy_pattern

_LONGEST = 400  # characters
_BEGINNINGS = (
    *(
        "Go on with",
        "Answer from what you know",
        "Answer here",
        "Answer with the plan",
        "Ask the person",
        "Do not ask it again",
    ),
    *("Send the call again", "Send the whole call again", "Make it again if", "Call again", r"Call \S+ again"),
    *("Call it with these arguments", "Call one of the tools", "Correct this and call", "Use another tool"),
    *("Decide yourself", "Do it yourself", "Find out what changes it", "Check before doing it again"),
    *("Try other words", "Write the text in your answer", "There are: ", "There are no tools: answer"),
    *("recall_memory shows", "list_sessions shows"),
)
_ADVICE = lazy_pattern(rf" (?:{'|'.join(_BEGINNINGS)})[^\n]*\Z")


def advice_of(message: str) -> str:
    """Return the advice at the end of a refusal, with the space before it; empty if it ends otherwise."""
    found = _ADVICE.search(message[-_LONGEST:])
    return found[0] if found else ""
