"""`/prompt`: stored prompts, and those of MCP servers, as a message."""

from __future__ import annotations

import re
from typing import Any

from routes.terminal.answers import Interrupted, Over
from routes.terminal.commands.conversation import Conversation
from routes.terminal.event_client import ChatFailed, step
from routes.terminal.view import printable
from routes.texts import text

BLANK = re.compile(r"\{\{\s*([\w -]{1,64}?)\s*\}\}")  # {{file}}, as on the page
ABOUT = 100  # characters of what a prompt is for


async def use_prompt(talk: Conversation, argument: str) -> None:
    """List the prompts, or fill in the one of this name or number and send it."""
    rows = await _prompts(talk)
    names = talk.names["prompt"] = [row["key"] for row in rows]
    if not rows:
        talk.say(text("terminal.prompt.none"), "dim")
        return
    if not argument:
        for number, row in enumerate(rows, start=1):
            about = printable(str(row.get("about") or row.get("description") or row.get("title") or ""))
            about = about.replace("\n", " ")[:ABOUT]
            talk.say(f"{number:3}  {printable(row['key'])}  {about}")
        talk.say(text("terminal.prompt.hint"), "dim")
        return
    at = int(argument) - 1 if argument.isdecimal() else names.index(argument) if argument in names else -1
    if not 0 <= at < len(rows):
        talk.problem(text("terminal.prompt.unknown", name=argument))
        return
    if (message := await _filled(talk, rows[at])) is not None:
        await talk.send(message)


async def _prompts(talk: Conversation) -> list[dict[str, Any]]:
    """The person's own prompts and those of all servers that can be asked, each with a `key` for its name."""
    own = (await talk.api.get("/prompts"))["prompts"]
    rows: list[dict[str, Any]] = [row | {"key": row["name"], "about": row["about"] or row["text"]} for row in own]
    for server in (await talk.api.get("/mcp/servers"))["servers"]:
        try:
            listed = (await talk.api.get(f"/mcp/servers/{step(server['name'])}/prompts"))["prompts"]
        except ChatFailed:
            continue  # a server that is off has none
        rows += [row | {"server": server["name"], "key": f"{server['name']}/{row['name']}"} for row in listed]
    return rows


async def _filled(talk: Conversation, row: dict[str, Any]) -> str | None:
    """The text of a prompt with the arguments that the person gives; None when they go back."""
    given = dict[str, str]()
    is_own = "server" not in row
    blanks = [{"name": name} for name in dict.fromkeys(BLANK.findall(row["text"]))] if is_own else row.get("arguments")
    try:
        for argument in blanks or ():
            about = printable(str(argument.get("description") or ""))
            value = await talk.terminal.read(f"{printable(argument['name'])}: ", about)
            if value:
                given[argument["name"]] = value
    except (Interrupted, Over):
        return None
    if is_own:
        return BLANK.sub(lambda found: given.get(found[1], ""), row["text"])
    path = f"/mcp/servers/{step(row['server'])}/prompts/{step(row['name'])}"
    return str((await talk.api.post(path, {"arguments": given}))["text"])
