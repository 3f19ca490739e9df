"""Many tools and a small model: 8 requests, each for one tool, with 5, 40 and 150 tools there are.

`all`: every tool is in the prompt. `chosen`: the few that fit the request, the others behind `search_tools`, as a run
has it. The built-in tools are there as well. Real models under llama.cpp at temperature 0, with the product's prompt
(fences), choice and parser. `right` is a first call of the tool that serves, with any arguments; `named` a reply that
writes the tool's name, however the call came out: models as small as these seldom write one whole.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import aclosing
from datetime import date
from functools import partial
from pathlib import Path

from app.context.prompt import opening
from app.core.messages import Message
from app.core.provider import CallForm, ModelRequest, Provider, TextChunk
from app.models.capabilities.abilities import AbilityOverrides
from app.models.http.client import model_client
from app.models.wire.hosted_provider import RequestDefaults
from app.models.wire.openai.provider import BareChat, OpenAIChat
from benchmarks.call_forms import NEXT_TURN, TRANSCRIPT
from parsing import Call, parse
from parsing.aliases import loose
from tests.support.models.real_models import GEMMA, LlamaServer, Served
from tools.base.rights import Risk
from tools.catalogue import TOOLS
from tools.mcp.tool_search import ToolChoices, toolbox_within
from tools.tool import Context, Tool, answering
from tools.toolbox import Allow, Toolbox

COUNTS = (5, 40, 150)
SHARE, WINDOW = 0.05, 8192
MOST_TOKENS = 16
# name, argument, description, the request that it serves
WANTED = (
    ("weather__forecast", "city", "Weather forecast for a city.", "What is the weather forecast for Rome?"),
    ("mail__send_message", "to", "Send an e-mail message.", "Send an e-mail to ann@example.org."),
    ("calendar__create_event", "title", "Create an event in the calendar.", "Create a calendar event: lunch."),
    ("money__convert_currency", "amount", "Convert an amount of money to a currency.", "Convert 50 euros to yen."),
    ("text__translate", "text", "Translate a text to another language.", "Translate good morning to French."),
    ("music__play_song", "title", "Play a song.", "Play the song Yesterday."),
    ("tickets__create_issue", "title", "Create an issue in the tracker.", "Create an issue: login is broken."),
    ("maps__find_route", "to", "Find the route to a place.", "Find the route to the airport."),
)
PLACES = ("crm", "wiki", "billing", "deploy", "metrics", "hr", "shop", "forum", "backup", "dns", "ads", "lab")
ACTIONS = ("list_records", "get_record", "update_record", "delete_record", "export_report", "count_rows", "sync_state",
           "archive_entry", "approve_request", "rotate_key", "tag_item", "merge_duplicates")  # fmt: skip


async def _nothing(_: dict[str, object], __: Context) -> str:
    return ""


def tool(name: str, argument: str, description: str) -> Tool:
    schema = {"type": "object", "properties": {argument: {"type": "string"}}, "required": [argument]}
    return Tool(f"mcp__{name}", description, schema, Risk.READ, answering(_nothing))


def tools_for(wanted: int, count: int) -> list[Tool]:
    """The wanted tool of a task among others: the same list for all, if that has room for all that are wanted."""
    first = 0 if count >= len(WANTED) else wanted
    needed = [tool(*row[:3]) for row in (*WANTED[first:], *WANTED[:first])][:count]
    names = [(place, action) for action in ACTIONS for place in PLACES]
    others = [tool(f"{place}__{action}", "id", f"{action.replace('_', ' ')} of {place}.") for place, action in names]
    mixed, each = list[Tool](), (count - len(needed)) // len(needed)
    for at, one in enumerate(needed):
        mixed += [one, *others[at * each : (at + 1) * each]]
    return [*mixed, *others[len(needed) * each :]][:count]


async def toolbox_of(tools: list[Tool], request: str, *, chosen: bool) -> Toolbox:
    sources = {"servers": [one.name for one in tools if one.name.startswith("mcp__")]}
    tools = [*TOOLS, *tools]
    limit = SHARE * WINDOW if chosen else float("inf")
    toolbox = toolbox_within(limit, tools, lambda *_: Allow(), "ann", sources, choices=ToolChoices())
    await toolbox.choose("session", request)
    return toolbox


async def answer(model: Provider, toolbox: Toolbox, request: str) -> tuple[str, list[str], int]:
    """The reply, the names of the tools that it calls, and the tokens of the prompt."""
    text, calls = "", list[Call]()
    begin = partial(
        opening, toolbox.offered, call_form=CallForm.FENCED, workspace=Path("/home/ann"), today=date(2026, 11, 21)
    )
    model_request = ModelRequest([Message("user", request)], opening=begin)
    async with aclosing(model.stream(model_request)) as pieces:
        async for piece in pieces:
            text += piece.text if isinstance(piece, TextChunk) else ""
            calls = parse(text.partition(NEXT_TURN)[0], toolbox.schemas, fences=True).calls
            if calls or NEXT_TURN in text:
                break
    texts = [message.text for message in model_request.whole()]
    tokens = sum(await model.count_tokens(texts) or [len(text) // 4 for text in texts])
    return text, [toolbox.normalise_call(call.name, call.arguments)[0] for call in calls], tokens


async def measured(served: Served, count: int, *, chosen: bool) -> str:
    """One row of the table."""
    started, right, named, listed, prompts = time.monotonic(), 0, 0, 0, list[int]()
    with LlamaServer(served) as server:
        async with model_client(url := server.base_url) as client:
            chat = OpenAIChat if served.weights else BareChat
            model = chat(
                client, url, served.name,
                overrides=AbilityOverrides("fenced"), defaults=RequestDefaults(MOST_TOKENS, 0.0),
            )  # fmt: skip
            for at, (name, _, _, request) in enumerate(WANTED):
                toolbox = await toolbox_of(tools_for(at, count), request, chosen=chosen)
                listed += f"mcp__{name}" in toolbox.offered.by_name
                text, called, tokens = await answer(model, toolbox, request)
                named += loose(name) in loose(text) or loose(name.partition("__")[2]) in loose(text)
                right += called[:1] == [f"mcp__{name}"]
                prompts.append(tokens)
    way, seconds, of = "chosen" if chosen else "all", time.monotonic() - started, len(WANTED)
    chose = f"{listed:6} {named:5} {right:5} of {of}"
    return f"{served.name:24} {count:5} {way:8} {chose} {sum(prompts) // of:8} {seconds:6.0f} s"


def main() -> None:
    models = [Served(str(GEMMA), "gemma-3-270m", TRANSCRIPT, context=WINDOW)] if GEMMA.exists() else []
    models.append(Served(name="SmolLM2-135M-Instruct", context=WINDOW))
    print("model                    tools way      listed named right      prompt tokens")
    for served in models:
        for count in COUNTS:
            for chosen in (False, True):
                print(asyncio.run(measured(served, count, chosen=chosen)), flush=True)


if __name__ == "__main__":
    main()
