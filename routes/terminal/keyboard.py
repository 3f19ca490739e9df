"""The answers of the person at this terminal, typed while the run's events go on being read."""

from __future__ import annotations

import json
import os
import signal
import sys
import termios
from collections.abc import Callable, Mapping
from typing import Any

from app.core.events import ApprovalRequired
from routes.terminal.approval_text import choices_of, exact_json, form_of, literal_pattern
from tools.builtin.ask_user import OWN_QUESTION

Decision = Mapping[str, Any]
"""The body of POST /runs/{id}/approvals/{call}."""

LONGEST = 10_000  # characters of one line that can still be changed with comfort
ONCE = "  y  yes, this once\n  s  yes, this very call all session\n"
EDITED = "  p  yes, calls that fit a pattern\n  e  yes, with other arguments\n"
NO = "  n  no; words after it tell why\n"
CHOOSE = "Type the number of a choice, or other words. Enter on an empty line declines.\n"
WRITE = "Type your answer. Enter on an empty line declines.\n"
PATTERN_HELP = "Widen it with *. Enter on an empty line goes back.\npattern: "
ARGUMENTS_HELP = "Change it. Enter on an empty line goes back.\narguments: "


class _Interrupted(Exception):
    """Ctrl-C, which is a key like any other while a line is edited."""


class _Over(Exception):
    """Ctrl-D: no more answers."""


def _draft(wanted: ApprovalRequired) -> Mapping[str, Any]:
    form = form_of(wanted)
    return wanted.arguments if form is None else form


class Keyboard:
    """Asks at the terminal. Cancelling `decision` takes the prompt away and leaves the terminal as it was."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell
        self._dumb = os.environ.get("TERM", "dumb").lower() in ("", "dumb", "unknown")

    async def decision(self, wanted: ApprovalRequired) -> Decision | None:
        """The person's decision; None after Ctrl-C, which is passed on as the signal that it is elsewhere."""
        # What was typed before the question was there is no answer to it.
        termios.tcflush(sys.stdin, termios.TCIFLUSH)
        try:
            return await self._decision(wanted)
        except _Interrupted:
            signal.raise_signal(signal.SIGINT)
            return None
        except _Over:
            return {"decision": "deny"}

    async def _decision(self, wanted: ApprovalRequired) -> Decision:
        if wanted.name == OWN_QUESTION:
            return await self._own_answer(choices_of(wanted))
        letters = "y, s or n" if self._dumb else "y, s, p, e or n"
        menu = f"{ONCE}{'' if self._dumb else EDITED}{NO}answer: "
        while True:
            letter, _, words = (await self._line(menu)).strip().partition(" ")
            match letter.lower(), words.strip():
                case (("y" | "yes"), ""):
                    return {"decision": "approve"}
                case "s", "":
                    return {"decision": "approve", "scope": "session"}
                case (("n" | "no"), note):
                    return {"decision": "deny"} | ({"note": note} if note else {})
                case "p", "" if not self._dumb:
                    if pattern := await self._object(PATTERN_HELP, literal_pattern(wanted.arguments)):
                        return {"decision": "approve", "scope": "session", "pattern": pattern}
                case "e", "" if not self._dumb:
                    if (arguments := await self._object(ARGUMENTS_HELP, _draft(wanted))) is not None:
                        return {"decision": "approve", "arguments": arguments}
                case _:
                    self._tell(f"Answer with {letters}, and Enter.")

    async def _own_answer(self, choices: list[str]) -> Decision:
        """The answer to a question of the model: the number of a choice, a text, or none."""
        text = (await self._line(f"{CHOOSE if choices else WRITE}answer: ")).strip()
        if not text:
            return {"decision": "deny"}
        if text.isdecimal() and 1 <= int(text) <= len(choices):
            return {"decision": "approve", "arguments": {"answer": choices[int(text) - 1]}}
        return {"decision": "approve", "arguments": {"other" if choices else "answer": text}}

    async def _object(self, message: str, draft: Mapping[str, Any]) -> dict[str, Any] | None:
        """The JSON object that the person makes of the draft; None when they go back."""
        text = exact_json(draft)
        if len(text) > LONGEST:
            self._tell(f"These arguments are too long to change here ({len(text):,} characters).")
            return None
        while (text := await self._line(message, text)).strip():
            try:
                changed = json.loads(text)
            except (ValueError, RecursionError) as error:
                self._tell(f"That is not JSON ({error}). Mend it, or empty the line to go back.")
                continue
            if isinstance(changed, dict):
                return changed
            self._tell("That is no JSON object. Begin with { and end with }, or empty the line to go back.")
        return None

    async def _line(self, message: str, text: str = "") -> str:
        """One edited line. Nothing of the prompt is left afterwards, however it ends."""
        # Here, because it takes 0.1 s and most conversations never ask.
        from prompt_toolkit import PromptSession
        from prompt_toolkit.output.vt100 import Vt100_Output

        output = None  # and a terminal that cannot move its cursor is recognised
        if not self._dumb:
            output = Vt100_Output.from_pty(sys.stdout, os.environ["TERM"])
            output.enable_cpr = False  # a terminal that does not tell where its cursor is would be scolded
        session: PromptSession[str] = PromptSession(
            message,
            output=output,
            erase_when_done=True,
            reserve_space_for_menu=0,
            interrupt_exception=_Interrupted,
            eof_exception=_Over,
        )
        # Ctrl-C is a key here; the handler of the signal stays whose it is.
        return await session.prompt_async(default=text, handle_sigint=False, set_exception_handler=False)
