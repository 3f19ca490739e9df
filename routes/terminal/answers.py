"""The answers of the person at this terminal, typed while the run's events go on being read."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from app.core.events import ApprovalRequired
from routes.terminal.approval_text import choices_of, exact_json, form_of, literal_pattern
from routes.texts import text
from tools.builtin.ask_user import OWN_QUESTION

Decision = Mapping[str, Any]
"""The body of POST /runs/{id}/approvals/{call}."""

LONGEST = 10_000  # characters of one line that can still be changed with comfort


class Interrupted(Exception):
    """Ctrl-C while a line is read."""


class Over(Exception):
    """Ctrl-D: nothing more is typed here."""


class Reader(Protocol):
    """A terminal that reads what is typed."""

    edits: bool  # it can put a text before the person to be changed

    def drop_typed(self) -> None:
        """Forget what was typed and not read yet: typed before a question, it is no answer to it."""

    async def read(self, prompt: str, menu: str = "", draft: str = "") -> str:
        """One answer. Cancelling it takes the prompt away. Raises Interrupted, Over."""
        ...


class PersonAnswers:
    """Asks at the terminal. `interrupt` is what Ctrl-C does."""

    def __init__(self, reader: Reader, show: Callable[[str], None], interrupt: Callable[[], None]) -> None:
        self._reader = reader
        self._show = show
        self._interrupt = interrupt

    async def decision(self, wanted: ApprovalRequired) -> Decision | None:
        """The person's decision; None after Ctrl-C."""
        self._reader.drop_typed()
        try:
            return await self._decision(wanted)
        except Interrupted:
            self._interrupt()
            return None
        except Over:
            return {"decision": "deny"}

    async def _decision(self, wanted: ApprovalRequired) -> Decision:
        if wanted.name == OWN_QUESTION:
            return await self._own_answer(choices_of(wanted))
        edits = self._reader.edits
        menu = text("terminal.answer.menu") if edits else text("terminal.answer.short_menu")
        while True:
            letter, _, words = (await self._reader.read(text("terminal.answer.prompt"), menu)).strip().partition(" ")
            match letter.lower(), words.strip():
                case (("y" | "yes" | "j" | "ja"), ""):
                    return {"decision": "approve"}
                case "s", "":
                    return {"decision": "approve", "scope": "session"}
                case (("n" | "no" | "nein"), note):
                    return {"decision": "deny"} | ({"note": note} if note else {})
                case "p", "" if edits:
                    prompt, asked = text("terminal.answer.pattern"), text("terminal.answer.pattern_menu")
                    if pattern := await self._object(prompt, asked, literal_pattern(wanted.arguments)):
                        return {"decision": "approve", "scope": "session", "pattern": pattern}
                case "e", "" if edits:
                    prompt, asked = text("terminal.answer.arguments"), text("terminal.answer.arguments_menu")
                    form = form_of(wanted)
                    draft = wanted.arguments if form is None else form
                    if (arguments := await self._object(prompt, asked, draft)) is not None:
                        return {"decision": "approve", "arguments": arguments}
                case _:
                    self._show(text("terminal.answer.letters") if edits else text("terminal.answer.few_letters"))

    async def _own_answer(self, choices: list[str]) -> Decision:
        """The answer to a question of the model: the number of a choice, a text, or none."""
        menu = text("terminal.answer.choose") if choices else text("terminal.answer.write")
        typed = (await self._reader.read(text("terminal.answer.prompt"), menu)).strip()
        if not typed:
            return {"decision": "deny"}
        if typed.isdecimal() and 1 <= int(typed) <= len(choices):
            return {"decision": "approve", "arguments": {"answer": choices[int(typed) - 1]}}
        return {"decision": "approve", "arguments": {"other" if choices else "answer": typed}}

    async def _object(self, prompt: str, menu: str, draft: Mapping[str, Any]) -> dict[str, Any] | None:
        """The JSON object that the person makes of the draft; None when they go back."""
        typed = exact_json(draft)
        if len(typed) > LONGEST:
            self._show(text("terminal.answer.too_long", count=f"{len(typed):,}"))
            return None
        while (typed := await self._reader.read(prompt, menu, typed)).strip():
            try:
                changed = json.loads(typed)
            except (ValueError, RecursionError) as error:
                self._show(text("terminal.answer.no_json", error=error))
                continue
            if isinstance(changed, dict):
                return changed
            self._show(text("terminal.answer.no_object"))
        return None
