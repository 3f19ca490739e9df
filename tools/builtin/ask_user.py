"""ask_user: asks the person of the run a question, with choices or for a text."""

from __future__ import annotations

from typing import Any

from parsing import Arguments
from tools.base.escape_invisible import visible
from tools.base.outcome import ToolFailed, required
from tools.base.schemas import argument_error
from tools.tool import Context, NoAnswer

OWN_QUESTION = "ask_user__question"  # in place of a tool's name, so that it is no call of the tool itself
MAX_QUESTION, MAX_CHOICE, MAX_ANSWER = 2_000, 300, 20_000  # characters
MAX_CHOICES = 20
REASON = "The model asks you. Approve with the answers as arguments, or deny."
UNATTENDED = "Nobody can answer questions here. Decide yourself, or end your turn with what you need to know."
UNANSWERED = {
    "denied": "The person does not want to answer",
    "expired": "The person did not answer in time",
    "withdrawn": "The question was withdrawn",
}
ADVICE = "Do not ask it again: go on without the answer, or end your turn with what you need to know."


async def ask_user(arguments: Arguments, context: Context) -> str:
    """Return the person's answer. Raises ToolFailed without one."""
    ask = required(context.ask, UNATTENDED)
    question = visible(arguments["question"]).strip()
    if not question:
        raise ToolFailed("question is empty.", " Write the question that the person is to answer.")
    if len(question) > MAX_QUESTION:
        raise ToolFailed("question is too long", f": write at most {MAX_QUESTION:,} characters.")
    schema = _form(_choices(arguments.get("choices") or []))

    def objection(answer: Arguments) -> str | None:
        if error := argument_error(OWN_QUESTION, schema, answer):
            return error
        return None if _text_of(answer) else "Choose an answer or write one."

    answer = await ask(OWN_QUESTION, {"message": question, "schema": schema}, REASON, objection)
    if isinstance(answer, NoAnswer):
        note = f": {answer.note}" if answer.note else ""
        raise ToolFailed(f"{UNANSWERED[answer.state]}{note}. {ADVICE}")
    return _text_of(answer)


def _choices(written: list[str]) -> list[str]:
    """Return the choices, each once. Raises ToolFailed."""
    choices = list(dict.fromkeys(choice for one in written if (choice := visible(one).strip())))
    if len(choices) > MAX_CHOICES:
        raise ToolFailed(f"There are {len(choices)} choices", f": give at most {MAX_CHOICES}.")
    if any(len(choice) > MAX_CHOICE for choice in choices):
        raise ToolFailed("A choice is too long", f": write at most {MAX_CHOICE} characters.")
    return choices


def _form(choices: list[str]) -> dict[str, Any]:
    """Build the form. A person who is given choices may still answer in other words."""
    text = {"type": "string", "maxLength": MAX_ANSWER}
    if not choices:
        return {
            "type": "object",
            "properties": {"answer": text | {"title": "Your answer"}},
            "required": ["answer"],
        }
    choice = {"type": "string", "title": "Your answer", "enum": choices}
    return {"type": "object", "properties": {"answer": choice, "other": text | {"title": "Or in your own words"}}}


def _text_of(answer: Arguments) -> str:
    """Return the answer: the choice, the person's own words, or both."""
    return "\n".join(text for name in ("answer", "other") if (text := str(answer.get(name) or "").strip()))
