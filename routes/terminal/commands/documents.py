"""`/document`: prints the document of the conversation that was changed last, or the one named."""

from __future__ import annotations

from routes.terminal.api import step
from routes.terminal.commands.conversation import Conversation
from routes.terminal.rendering.markdown import rendered
from routes.terminal.view import printable
from routes.texts import text


async def print_document(talk: Conversation, argument: str) -> None:
    """Raises ChatFailed."""
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
