"""Commands about conversations: list, resume, begin anew, print a document."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from typing import Any

from rich.text import Text

from routes.terminal.commands.conversation import Conversation, Rewound
from routes.terminal.event_client import ChatFailed, step
from routes.terminal.own_shell import without_ran
from routes.terminal.rendering.markdown import rendered
from routes.terminal.view import printable
from routes.texts import text

SHOWN = 20  # sessions of a list
PREVIEWED = 30  # of those to choose from
MOST, ROW = 500, 200  # messages to go back to, and characters of each
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
        talk.terminal.print(Text.assemble(f"{mark}{number:3}  ", (_used(row), "dim"), f"  {_title(row)}\n"))
    if rows:
        talk.say(text("terminal.sessions.hint"), "dim")


async def resume(talk: Conversation, argument: str) -> None:
    """Go on with a conversation: one chosen from a list, that of a number of /sessions, or of an id."""
    if not argument:
        if not (session := await _chosen(talk)):
            return
    elif not argument.isdecimal():
        session = argument
    else:
        listed = talk.listed or [row["id"] for row in (await talk.api.get("/sessions"))["sessions"]]
        if not 1 <= int(argument) <= len(listed):
            talk.problem(text("terminal.resume.number", count=len(listed)))
            return
        session = listed[int(argument) - 1]
    row = await talk.api.get(f"/sessions/{step(session)}")
    talk.choices.switch(row["id"])
    await talk.standing.look(talk.api)
    said = [one for one in row["messages"] if one.get("role") in ("user", "assistant") and str(one.get("text", ""))]
    own = (str(one["text"]) for one in reversed(said) if one["role"] == "user" and not one.get("app"))
    talk.last_message = next(own, None)
    for message in said[-LAST:]:
        app, said_text = message.get("app"), message["shown"] if message.get("app") else message["text"]
        words = printable(str(said_text))[:LONGEST]
        if app:
            talk.say(f"{text('terminal.export.app', server=printable(app))}:", "dim")
        if message["role"] == "user":
            talk.say(f"> {words}", "bold")
        else:
            talk.terminal.print(rendered(words))
    talk.say(text("terminal.resume.now", title=_title(row)), "dim")


async def _chosen(talk: Conversation) -> str | None:
    """The id of the conversation that the person chooses. Previews come one after the other, while the list stands."""
    rows = (await talk.api.get("/sessions"))["sessions"]
    if not rows:
        talk.problem(text("terminal.sessions.none"))
        return None
    lines = [f"{_used(row)}  {'● ' if row.get('running') else ''}{_title(row)}" for row in rows]

    async def preview() -> None:
        for at, row in enumerate(rows[:PREVIEWED]):
            with suppress(ChatFailed, LookupError, TypeError):
                messages = (await talk.api.get(f"/sessions/{step(row['id'])}"))["messages"]
                shown = [one for one in messages if one.get("role") in ("user", "assistant") and one.get("text")]
                words = printable(str(shown[-1]["text"]))[:LONGEST]
                lines[at] += "\n" + ("> " if shown[-1]["role"] == "user" else "") + words

    previews = asyncio.get_running_loop().create_task(preview())
    try:
        place = await talk.pick(text("terminal.resume.prompt"), lines)
    finally:
        previews.cancel()
        await asyncio.gather(previews, return_exceptions=True)
    return None if place is None else str(rows[place]["id"])


def _used(row: dict[str, Any]) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(float(row["updated"])))


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


async def rewind(talk: Conversation, _argument: str) -> None:
    """Choose a message to stand at the prompt; what is sent next begins a branch before it. Raises ChatFailed."""
    session = talk.choices.session
    runs = []
    if session and not talk.choices.temporary:
        runs = (await talk.api.get(f"/sessions/{step(session)}/log?runs={MOST}&events=false"))["runs"][::-1]
    own = [(run["run"], without_ran(str(run["message"].get("text", "")))) for run in runs if run.get("message")]
    if session is None or not own:
        talk.problem(text("terminal.rewind.nothing"))
        return
    rows = [" ".join(printable(words)[:ROW].split()) or "-" for _, words in own]
    place = await talk.pick(text("terminal.rewind.prompt"), [text("terminal.rewind.now"), *rows])
    if place is None:
        return
    if place == 0:
        talk.rewound = None
        return
    run, words = own[place - 1]
    talk.rewound, talk.draft = Rewound(session, run), words
    talk.say(text("terminal.rewind.done", message=rows[place - 1]), "dim")


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
