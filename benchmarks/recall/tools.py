"""Recall@6 of the choice of tools among the 525 of 20 MCP servers, for 120 requests: by words, by meaning, by both.

`as written` are the words of the request alone. The requests `kept back` had no part in the making of the tables and
weights. Needs the extra `embeddings`; without it only words are measured. A request is found if one of the tools that
can serve it is among the six that its conversation is shown.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
import time
from collections.abc import Awaitable, Callable, Sequence
from itertools import islice
from pathlib import Path

from msgspec import Struct

from app.memory.embedders.embedder import Embedder
from app.memory.embedders.local import LocalE5, is_installed
from app.memory.tool_meaning import ToolMeaning
from tools.base.rights import Risk
from tools.mcp.names import public_name
from tools.mcp.tool_index import COMMON, Index, ranked, shared, spaced
from tools.mcp.tool_search import FEW, MOST_OF_SERVER
from tools.tool import Context, Tool, answering

FIXTURES = Path(__file__).parent.parent.parent / "fixtures" / "mcp"
PARTS = ("tuned on", "kept back", "in German")
Find = Callable[[str], Awaitable[Sequence[Tool]]]


class Request(Struct, frozen=True):
    part: str
    request: str
    tools: list[str]  # server/tool: each of them can serve it

    @property
    def names(self) -> set[str]:
        return {public_name(*one.split("/")) for one in self.tools}


async def _nothing(_: dict[str, object], __: Context) -> str:
    return ""


def tools_by_server() -> dict[str, list[Tool]]:
    """The tools of the servers of the fixtures, as a client lists them."""
    found = dict[str, list[Tool]]()
    for file in sorted((FIXTURES / "registry").glob("*.jsonl")):
        head, *listed = map(json.loads, file.read_text("utf-8").splitlines())
        server = head["server"]
        found[server] = [
            Tool(
                public_name(server, one["name"]),
                one.get("description", ""),
                one["inputSchema"],
                Risk.READ,
                answering(_nothing),
            )
            for one in listed
        ]
    return found


def requests() -> list[Request]:
    return [Request(**json.loads(line)) for line in (FIXTURES / "requests.jsonl").read_text("utf-8").splitlines()]


def as_written(tools: Sequence[Tool]) -> Find:
    """The words of a request alone, over names, descriptions and whole schemas."""
    words = sqlite3.connect(":memory:")
    words.execute("CREATE VIRTUAL TABLE tools USING fts5(name, description, schema, tokenize = 'porter unicode61')")
    rows = [tuple(map(spaced, (tool.name, tool.description, json.dumps(tool.parameters)))) for tool in tools]
    words.executemany("INSERT INTO tools VALUES (?, ?, ?)", rows)

    async def find(text: str) -> list[Tool]:
        letters = "".join(one if one.isalnum() else " " for one in spaced(text))
        terms = " OR ".join(f'"{word}"' for word in letters.split() if word.casefold() not in COMMON)
        order = "SELECT rowid FROM tools WHERE tools MATCH ? ORDER BY bm25(tools, 8, 2, 1), rowid LIMIT ?"
        return [tools[number - 1] for (number,) in words.execute(order, (terms, FEW))] if terms else []

    return find


async def bench() -> None:
    by_server, asked = tools_by_server(), requests()
    tools = [tool for some in by_server.values() for tool in some]
    sources = {server: [tool.name for tool in some] for server, some in by_server.items()}
    by_name = {tool.name: tool for tool in tools}
    began = time.perf_counter()
    index = Index(tools)
    built = time.perf_counter() - began
    ways: dict[str, Find] = {"words, as written": as_written(tools), "words": lambda text: ranked(index, text, None)}
    if is_installed():
        meaning = ToolMeaning(Embedder(LocalE5()))
        texts = index.texts
        began = time.perf_counter()
        while not await meaning.nearest("What time is it?", texts):
            await meaning.known()
        print(f"vectors of {len(tools)} tools, once: {time.perf_counter() - began:.0f} s")

        async def by_meaning(text: str) -> list[Tool]:
            return [by_name[name] for name in await meaning.nearest(text, texts)]

        ways |= {"meaning": by_meaning, "both": lambda text: ranked(index, text, meaning)}
    sizes = [sum(one.part == part for one in asked) for part in PARTS]
    heads = (f"{part} ({size})" for part, size in zip(PARTS, sizes, strict=True))
    print(f"recall@{FEW} of {len(tools)} tools  {'  '.join(f'{head:>14}' for head in heads)}  ms a request")
    for way, find in ways.items():
        found, began = dict.fromkeys(PARTS, 0), time.perf_counter()
        for one in asked:
            few = islice(shared(await find(one.request), sources, MOST_OF_SERVER), FEW)
            found[one.part] += not one.names.isdisjoint(tool.name for tool in few)
        shares = "  ".join(f"{found[part] / size:14.2f}" for part, size in zip(PARTS, sizes, strict=True))
        print(f"  by {way:19} {shares}  {(time.perf_counter() - began) * 1000 / len(asked):12.1f}")
    print(f"the index of words is built in {built * 1000:.0f} ms")


def main() -> None:
    asyncio.run(bench())


if __name__ == "__main__":
    main()
