"""The answers of the person at this terminal, typed while the run's events go on being read."""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from msgspec import Struct
from rich.console import RenderableType

from app.core.events import ApprovalRequired
from routes.terminal.approval_text import choices_of, form_of, literal_pattern
from routes.terminal.run_display import Decision, Output
from routes.terminal.view import View
from routes.texts import text
from routes.texts.exact import exact_json, one_line
from tools.builtin.ask_user import OWN_QUESTION

T = TypeVar("T")
LONGEST = 10_000  # characters of one line that can still be changed with comfort


class Interrupted(Exception):
    """Ctrl-C while a line is read."""


class Over(Exception):
    """Ctrl-D: nothing more is typed here."""


class Hooks(Struct):
    """Handlers of lines and keys, and the words of the conversation around the prompt."""

    line: Callable[[str], None] = lambda _line: None
    interrupt: Callable[[], None] = lambda: None
    stop: Callable[[], object] = lambda: None
    stop_call: Callable[[], None] = lambda: None
    switch: Callable[[], None] = lambda: None
    next_mode: Callable[[], None] = lambda: None
    completions: Callable[[str], list[tuple[str, str]]] = lambda _typed: []  # words and what they are for
    hides: Callable[[str], bool] = lambda _typed: False  # what is being typed is not shown
    working: Callable[[], str] | None = None  # says how a run goes on, while one does
    sign: Callable[[], str] = str  # of the prompt during a run, where it is another one
    status: Callable[[], list[str]] = list  # of the line below the prompt


class Terminal(Protocol):
    """A window, or a terminal that cannot move its cursor."""

    edits: bool  # it can put a text before the person to be changed
    hooks: Hooks

    @property
    def is_typing(self) -> bool:
        """True while something stands at the prompt that was not sent."""
        ...

    async def within(self, body: Coroutine[Any, Any, T]) -> T: ...
    async def message(self, draft: str = "") -> str: ...
    def drop_typed(self) -> None:
        """Forget what was typed and not read yet: typed before a question, it is no answer to it."""

    async def read(self, prompt: str, menu: str = "", draft: str = "", choices: Sequence[str] = ()) -> str:
        """One answer; of `choices` the first word, by one key, or what is typed where keys are not read singly.

        Cancelling it takes the prompt away. Raises Interrupted, Over.
        """
        ...

    async def pick(self, prompt: str, rows: Sequence[str]) -> int | None:
        """The place of one row, of which the first line is shown, of the chosen one all lines.

        By arrows and words, or by its number; None for none. Raises Interrupted, Over.
        """
        ...

    def print(self, *pieces: RenderableType) -> None: ...
    def output(self, view: View) -> Output: ...
    def hide(self, *, on: bool) -> None: ...


class PersonAnswers:
    """Asks at the terminal. `interrupt` is what Ctrl-C does."""

    def __init__(self, terminal: Terminal, show: Callable[[str], None], interrupt: Callable[[], None]) -> None:
        self._terminal = terminal
        self._show = show
        self._interrupt = interrupt

    async def decision(self, wanted: ApprovalRequired) -> Decision | None:
        """The person's decision; None after Ctrl-C."""
        self._terminal.drop_typed()
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
        edits = self._terminal.edits
        choices = text("terminal.answer.menu" if edits else "terminal.answer.short_menu").split("\n")
        offered = wanted.proposals or ()
        for at, one in enumerate(offered, start=1):
            choices.append(text("terminal.answer.always", number=at, words=one_line(str(one.get("words")))))
        while True:
            typed = (await self._terminal.read(text("terminal.answer.prompt"), choices=choices)).strip()
            letter, _, words = typed.partition(" ")
            match letter.lower(), words.strip():
                case (("y" | "yes" | "j" | "ja"), ""):
                    return {"decision": "approve"}
                case number, "" if number.isdecimal() and 1 <= int(number) <= len(offered):
                    return {"decision": "approve", "scope": "always", "pattern": offered[int(number) - 1]["pattern"]}
                case "s", "":
                    return {"decision": "approve", "scope": "session"}
                case (("n" | "no" | "nein"), note):
                    return {"decision": "deny"} | ({"note": note} if note else {})
                case (("r" | "g"), "") if edits:
                    if note := (await self._terminal.read(f"{text('approvals.reason')}: ")).strip():
                        return {"decision": "deny", "note": note}
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
                    self._show(text("terminal.answer.letters"))

    async def _own_answer(self, choices: list[str]) -> Decision:
        """The answer to a question of the model: the number of a choice, a text, or none."""
        menu = text("terminal.answer.choose") if choices else text("terminal.answer.write")
        typed = (await self._terminal.read(text("terminal.answer.prompt"), menu)).strip()
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
        while (typed := await self._terminal.read(prompt, menu, typed)).strip():
            try:
                changed = json.loads(typed)
            except (ValueError, RecursionError) as error:
                self._show(text("terminal.answer.no_json", error=error))
                continue
            if isinstance(changed, dict):
                return changed
            self._show(text("terminal.answer.no_object"))
        return None
