"""Servers with labelled data: two model endpoints, of which only `local` may have the label `customer`."""

from __future__ import annotations

import asyncio
from asyncio import StreamReader, StreamWriter
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.models.chatting import DONE, chunk, says
from tests.support.models.upstream import Upstream, answer, stream, upstream
from tests.support.server.events import Event, of_kind
from tests.support.server.serving import Served, serving

LIMIT_S = 60
SECRET = "ACME owes 4711"
LABELS = """
[[labels]]
label = "customer"
paths = ["customers/**", "*.secret"]
servers = ["crm"]

[[labels]]
label = "secret"

[[label_rules]]
label = "customer"
endpoints = ["local"]
"""
READ = "```read_file\ncustomers/a.txt\n```"


class Replies:
    """An Act: each chat gets the next reply, texts to count are counted, and there is nothing else."""

    def __init__(self, *replies: str) -> None:
        self.replies = list(replies)
        self.server = Upstream()

    async def __call__(self, reader: StreamReader, writer: StreamWriter) -> None:
        path = self.server.asked[-1].path
        if path.endswith("/chat/completions"):
            act = stream(says(self.replies.pop(0)), chunk(finish="stop"), DONE)
        else:
            act = answer('{"error":"not found"}', 404)
        await act(reader, writer)


@dataclass(slots=True)
class Labelled:
    served: Served
    hosted: Upstream
    local: Upstream
    replies: dict[str, list[str]] = field(default_factory=dict)

    def holds(self, text: str = SECRET) -> list[str]:
        """The endpoints that were sent this text, in whatever request."""
        servers = {"hosted": self.hosted, "local": self.local}
        return [name for name, server in servers.items() if any(text.encode() in one.body for one in server.asked)]

    async def labels(self, session: str) -> list[str]:
        found: list[str] = (await self.served.client.get(f"/sessions/{session}")).json()["labels"]
        return found


@asynccontextmanager
async def labelled(
    folder: Path,
    hosted: Sequence[str] = (),
    local: Sequence[str] = (),
    *,
    fallback: Sequence[str] = ("local",),
    toml: str = LABELS,
    **flags: object,
) -> AsyncGenerator[Labelled, None]:
    """A server whose default model is `hosted`, with a file of a customer in its workspace."""
    customers = folder / "work" / "customers"
    customers.mkdir(parents=True, exist_ok=True)
    (customers / "a.txt").write_text(f"{SECRET}\n")
    first, second = Replies(*hosted), Replies(*local)
    async with asyncio.timeout(LIMIT_S), upstream(first, repeat=True) as one, upstream(second, repeat=True) as other:
        first.server, second.server = one, other
        lines = [f"fallback = {list(fallback)}", "summarise_at = 1"]
        ends = ['model = "m"', 'tool_calls = "fenced"', "window = 16384"]
        for name, server in (("hosted", one), ("local", other)):
            lines += [f"[endpoints.{name}]", f'url = "{server.base_url}"', *ends]
        (folder / "dragoman.toml").write_text("\n".join([*lines, toml]))
        async with serving(folder, None, None, **flags) as served:
            yield Labelled(served, one, other, {"hosted": first.replies, "local": second.replies})


def added(events: Sequence[Event]) -> list[tuple[list[str], str]]:
    return [(event["labels"], event["source"]) for event in of_kind(events, "labels.added")]
