"""`dragoman chat` in scripts: the answer alone, or events as JSON lines; and a message from standard input."""

from __future__ import annotations

import io
import json
import os
import select
import sys
import time
from stat import S_ISFIFO, S_ISREG, S_ISSOCK
from typing import IO, Any

from rich.console import Console

from app.core.events import (
    AgentEvent,
    ReasoningDelta,
    RunFailed,
    RunFinished,
    RunStarted,
    TextDelta,
    TextReclassified,
    ToolDelta,
    ToolHanded,
    ToolRejected,
    ToolStarted,
    fields_of,
)
from routes.terminal.event_client import ChatFailed
from routes.terminal.exit_codes import USAGE
from routes.terminal.screen import Screen
from routes.terminal.view import View, printable
from routes.texts import text

PATIENCE_S = 3.0  # how long input beside a message may take to begin: a pipe may be open that no program writes to
BLOCK = 1 << 16


class AnswerOutput:
    """The text of the answer on `out`, and all else on `others`."""

    def __init__(self, out: IO[str], others: Console) -> None:
        self._out = out
        self._others = Screen(others, View(summary=False))
        self._said = list[TextDelta]()  # answer, or what stood before a call

    def show(self, event: AgentEvent) -> None:
        match event:
            case TextDelta():
                self._said.append(event)
            case ReasoningDelta():
                return
            case RunFinished(reason="answered", text=answer):
                # Where a call was written as a block of code, the event's text has that block, too.
                said = "".join(one.text for one in self._said)
                whole = said if said.strip() else answer
                shown = printable(whole) if self._out.isatty() else whole
                self._said.clear()  # first: where it cannot be written, it is no note either
                self._out.write(shown.strip("\n") + "\n")
            case TextReclassified(characters):
                said = "".join(one.text for one in self._said)
                self._said = [TextDelta(said[: len(said) - characters])]
            case ToolDelta() | ToolStarted() | ToolRejected() | ToolHanded() | RunFinished() | RunFailed():
                self._say_others()  # it stood before a call, and is no answer
                self._others.show(event)
            case _:
                self._others.show(event)

    def close(self) -> None:
        self._say_others()
        self._others.close()
        self._out.flush()

    def _say_others(self) -> None:
        for one in self._said:
            self._others.show(one)
        self._said.clear()


class JsonOutput:
    """Each event as a line of JSON, with its `type`."""

    def __init__(self, out: IO[str]) -> None:
        self._out = out

    def show(self, event: AgentEvent) -> None:
        self._out.write(json.dumps(fields_of(event)) + "\n")
        self._out.flush()

    def close(self) -> None:
        self._out.flush()


class ResultOutput:
    """One JSON object for the run, once it and its exit code are known; names as the events have them."""

    def __init__(self, out: IO[str], others: Console) -> None:
        self._out = out
        self._answer = io.StringIO()
        self._shown = AnswerOutput(self._answer, others)
        self._began = time.monotonic()
        self._result: dict[str, Any] = dict.fromkeys(("session", "run", "model", "reason", "text", "rounds", "calls"))

    def show(self, event: AgentEvent) -> None:
        self._shown.show(event)
        match event:
            case RunStarted() | RunFinished():
                fields = fields_of(event)
                known = ("usage", *self._result)
                self._result |= {name: fields[name] for name in known if name in fields}
            case RunFailed():
                self._result["error"] = fields_of(event)

    def close(self) -> None:
        self._shown.close()

    def write(self, code: int, problem: str = "") -> None:
        """`problem`: no end of the run is known, because of it."""
        usage = self._result.get("usage") or {}
        more = {"usage": usage, "cost": usage.get("cost"), "duration_s": round(time.monotonic() - self._began, 3)}
        if answer := self._answer.getvalue().strip("\n"):
            more["text"] = answer
        error = {"error": {"message": problem}} if problem else {}
        self._out.write(json.dumps(self._result | more | {"exit_code": code} | error) + "\n")
        self._out.flush()


def piped(limit: int, *, beside: bool) -> str:
    """Return what is written on standard input, nothing if that is a terminal. `beside` a message it may be empty.

    Raises ChatFailed.
    """
    if sys.stdin is None or sys.stdin.isatty():
        return ""
    if beside and not _begins():
        return ""
    written = _read(limit + 1)
    if len(written) > limit:
        raise ChatFailed(text("terminal.script.too_long", limit=f"{limit:,}"), USAGE)
    if not written.strip() and not beside:
        raise ChatFailed(text("terminal.script.nothing"), USAGE)
    return written.decode("utf-8", "replace")


def _read(most: int) -> bytes:
    """Read to the end; a wait that is long is announced, once."""
    pieces, left, announced = list[bytes](), most, False
    while left:
        if not announced and not select.select([sys.stdin], [], [], PATIENCE_S)[0]:
            print(f"dragoman: {text('terminal.script.waiting')}", file=sys.stderr, flush=True)
            announced = True
        if not (piece := os.read(sys.stdin.fileno(), min(left, BLOCK))):
            break
        pieces.append(piece)
        left -= len(piece)
    return b"".join(pieces)


def _begins() -> bool:
    """Return whether there is something to read, or the end of it, before the patience is at its end."""
    try:
        mode = os.fstat(sys.stdin.fileno()).st_mode
    except OSError:
        return False
    if S_ISREG(mode):
        return True
    if not (S_ISFIFO(mode) or S_ISSOCK(mode)):
        return False
    return bool(select.select([sys.stdin], [], [], PATIENCE_S)[0])
