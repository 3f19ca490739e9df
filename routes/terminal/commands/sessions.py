"""Commands about conversations: list, resume, begin anew, print a document."""

from __future__ import annotations

import time
from typing import Any

from rich.text import Text

from routes.terminal.commands.conversation import Conversation
from routes.terminal.event_client import step
from routes.terminal.rendering.markdown import rendered
from routes.terminal.view import printable
from routes.texts import text

SHOWN = 20  # sessions of a list
LAST = 2  # messages that are shown of a conversation that is resumed
LONGEST = 4_000  # characters of each


async def list_sessions(talk: Conversation, argument: str) -> None:
    """Number the sessions used last, or those that hold the words."""
    rows = (await talk.api.get(f"/sessions?q={step(argument)}" if argument else "/sessions"))["sessions"][:SHOWN]
    talk.listed = [row["id"] for row in rows]
    if not rows:
        talk.say(text("terminal.sessions.none"), "dim")
    for number, row in enumerate(rows, start=1):
        mark = "▸" if row["id"] == talk.choices.session else "●" if row.get("running") else " "
        used = time.strftime("%Y-%m-%d %H:%M", time.localtime(float(row["updated"])))
        talk.terminal.print(Text.assemble(f"{mark}{number:3}  ", (used, "dim"), f"  {_title(row)}\n"))
    if rows:
        talk.say(text("terminal.sessions.hint"), "dim")


async def resume(talk: Conversation, argument: str) -> None:
    """Go on with a conversation: the last one, that of a number of the list, or of an id."""
    if argument.isdecimal() and talk.listed:
        if not 1 <= int(argument) <= len(talk.listed):
            talk.problem(text("terminal.resume.number", count=len(talk.listed)))
            return
        session = talk.listed[int(argument) - 1]
    elif argument and not argument.isdecimal():
        session = argument
    else:
        rows = [row["id"] for row in (await talk.api.get("/sessions"))["sessions"]]
        at = int(argument) - 1 if argument else 0 if talk.choices.session is None else 1
        if not 0 <= at < len(rows):
            talk.problem(text("terminal.sessions.none"))
            return
        session = rows[at]
    row = await talk.api.get(f"/sessions/{step(session)}")
    talk.choices.switch(row["id"])
    await talk.standing.look(talk.api)
    said = [one for one in row["messages"] if one.get("role") in ("user", "assistant") and str(one.get("text", ""))]
    talk.last_message = next((str(one["text"]) for one in reversed(said) if one["role"] == "user"), None)
    for message in said[-LAST:]:
        words = printable(str(message["text"]))[:LONGEST]
        if message["role"] == "user":
            talk.say(f"> {words}", "bold")
        else:
            talk.terminal.print(rendered(words))
    talk.say(text("terminal.resume.now", title=_title(row)), "dim")


async def start_new(talk: Conversation, _argument: str) -> None:
    talk.choices.switch(None)
    await talk.standing.look(talk.api)
    talk.last_message = None
    talk.say(text("terminal.new"), "dim")


async def start_temporary(talk: Conversation, argument: str) -> None:
    talk.choices.switch(None)
    await talk.standing.look(talk.api)
    talk.choices.temporary, talk.last_message = True, None
    talk.say(text("terminal.temporary"), "dim")
    if argument:
        await talk.send(argument)


def _title(row: dict[str, Any]) -> str:
    return printable(str(row.get("title") or row["id"])).replace("\n", " ")[:120]


async def print_document(talk: Conversation, argument: str) -> None:
    """Print the document of the conversation that was changed last, or the one named. Raises ChatFailed."""
    title, session = argument.casefold(), talk.choices.session
    rows = (await talk.api.get(f"/sessions/{step(session)}/documents"))["documents"] if session else []
    found = [row for row in rows if not title or title in (row["id"], row["title"].casefold())]
    if not found:
        talk.say(text("terminal.document.none"))
        return
    newest = max(found, key=lambda row: float(row["updated"]))
    document = await talk.api.get(f"/documents/{step(newest['id'])}")
    facts = {"title": document["title"], "id": document["id"], "number": document["version"]}
    talk.say(printable(text("terminal.document.head", **facts)), "cyan")
    talk.terminal.print(rendered(printable(document["text"])))
