"""Function calls of the event loop for a request of one token, Python's and C's: a count that no busy machine changes.

The server is in this process and the model's is `benchmarks.upstream`, so that the whole path is counted but the work
of other threads: for a new conversation, for one turn more in a conversation of 4,000 messages, and for a relay. Each
call counts for the stage that is nearest above it. `python -m benchmarks request_calls`.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import httpx2
import uvicorn
import uvloop

from app.config.settings import Settings
from app.core.messages import Message, dump
from app.storage.changes import Change
from app.storage.runs import RunRow
from app.storage.sessions import MessageRow, SessionRow
from benchmarks.processes import child
from benchmarks.upstream import order
from routes.access.rate_limits import BoundedProtocol
from routes.server import connections_of, create_server
from routes.services import Services, open_services
from routes.workers.listening import listen

WARM, COUNTED = 12, 40
TURN = order(1, 0)
LONG, MESSAGES = "ses_long", 4_000
Row = tuple[str, Mapping[str, Any]]  # a path and a body
ROWS: Mapping[str, Row] = {
    "new": ("/chat", {"message": TURN}),
    "follow_up": ("/chat", {"message": TURN, "session": LONG}),
    "relay": (
        "/v1/chat/completions",
        {"model": "bench", "stream": True, "messages": [{"role": "user", "content": TURN}]},
    ),
}
ELSE = "the event loop, tasks, timers"
CLOCK = "ticks of the server (not in the sum)"  # the slower the machine, the more of them
STAGES = {  # function -> stage
    "BoundedProtocol": "connection, HTTP",
    "HttpToolsProtocol": "connection, HTTP",
    "Server.startup": "connection, HTTP",
    "Server": CLOCK,
    "RequestResponseCycle": "connection, HTTP",
    "StreamingApplication": "middlewares, routing",
    "Access._admit": "authentication",
    "read_message": "body and its check",
    "read_lane_request": "body and its check",
    "RunFactory": "composing the agent",
    "RunManager.start": "admission, first rows",
    "RunTask.__post_init__": "admission, first rows",
    "RunTask._turn": "turn: history, message",
    "Agent.run": "agent's loop",
    "View.fit": "prompt, counting, fitting",
    "RunBudget": "budgets, usage, metrics",
    "MeteredRequest": "budgets, usage, metrics",
    "Observers": "budgets, usage, metrics",
    "ModelRoute": "choice of the model's server",
    "HostedProvider._open": "request to the model",
    "HostedProvider": "answer of the model",
    "Connection.data_received": "answer of the model",
    "Connection.block": "answer of the model",
    "LeanTransport": "request to the model",
    "read_pieces": "answer of the model",
    "Reply": "parser, reply",
    "Agent._keep": "parser, reply",
    "RoundEnd": "end of the round",
    "RunLog": "events and rows of the log",
    "EventWriter.put": "events and rows of the log",
    "EventWriter._write_forever": "commits",
    "RunTask._end": "end of the run",
    "EventStreamResponse": "stream to the client",
}


class Calls:
    """Counts the calls of this thread for each stage."""

    def __init__(self) -> None:
        self.counts = Counter[str]()
        self._stages: dict[CodeType, str | None] = {}
        self._above = [ELSE]

    def see(self, frame: FrameType, event: str, _: object) -> None:
        if event == "return":
            if len(self._above) > 1:
                self._above.pop()
        elif event == "call":
            code = frame.f_code
            if code not in self._stages:
                owner = code.co_qualname.partition(".")[0]
                named = [name for name in STAGES if name == owner or f"{code.co_qualname}.".startswith(f"{name}.")]
                self._stages[code] = STAGES[max(named, key=len)] if named else None
            self._above.append(self._stages[code] or self._above[-1])
            self.counts[self._above[-1]] += 1
        elif event == "c_call":
            self.counts[self._above[-1]] += 1


@asynccontextmanager
async def served(url: str, folder: Path) -> AsyncIterator[tuple[int, Services]]:
    """The port of a server in this process, before the model's server at `url`."""
    settings = Settings(model_url=url, model="bench", data_dir=folder / "data", workspace=folder / "work", port=0)
    listener = listen(settings)
    port = listener.getsockname()[1]
    settings = settings.model_copy(update={"port": port, "log_level": "warning"})
    async with open_services(settings) as services:
        protocol = BoundedProtocol.within(connections_of(settings))
        app = create_server(services)
        config = uvicorn.Config(app, lifespan="off", http=protocol, ws="none", log_config=None, access_log=False)
        server = uvicorn.Server(config)
        serving = asyncio.create_task(server.serve([listener]))
        try:
            yield port, services
        finally:
            server.should_exit = True
            await serving


async def count(url: str, folder: Path) -> None:
    async with served(url, folder) as (port, services):
        counted = {"new": await counts_of(port, "new")}
        await begin_long(services)
        counted |= {name: await counts_of(port, name) for name in ("follow_up", "relay")}
    show(counted)


async def begin_long(services: Services) -> None:
    """Store a conversation of `MESSAGES`."""
    run = RunRow("run_long", LONG, "local", "bench", "answered", 1.0, 2.0)
    rows: list[Change] = [SessionRow(LONG, "local", 1.0, "long"), run]
    for at in range(0, MESSAGES, 2):
        said = Message("user", f"Question {at}: " + "words " * 30, at=1.0), Message("assistant", "An answer. " * 20)
        rows += [MessageRow(LONG, at + more, run.id, dump(message)) for more, message in enumerate(said)]
    await services.store.write(rows)


async def counts_of(port: int, name: str) -> Counter[str]:
    await requests(port, name, WARM)
    calls = Calls()
    sys.setprofile(calls.see)
    await requests(port, name, COUNTED)
    sys.setprofile(None)
    return calls.counts


def show(counted: Mapping[str, Counter[str]]) -> None:
    print(f"{'calls of a one-token request':38}" + "".join(f"{name:>12}" for name in counted))

    def line(name: str, values: Sequence[int]) -> str:
        return f"{name:38}" + "".join(f"{value / COUNTED:12,.0f}" for value in values)

    for stage in dict.fromkeys([*STAGES.values(), ELSE]):
        print(line(stage, [counts[stage] for counts in counted.values()]))
    print(line("all", [counts.total() - counts[CLOCK] for counts in counted.values()]))


async def requests(port: int, name: str, times: int) -> None:
    """Make requests one after the other, each on a connection of its own, from another process as a client's are."""
    client = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "benchmarks.request_calls", str(port), name, str(times)
    )
    if await client.wait():
        raise RuntimeError("a request failed")


def make_requests(port: str, name: str, times: str) -> None:
    path, body = ROWS[name]
    for _ in range(int(times)):
        with httpx2.stream("POST", f"http://127.0.0.1:{port}{path}", json=body) as response:
            text = response.read().decode()
        if "run.finished" not in text and "[DONE]" not in text:
            raise RuntimeError(text)


def main() -> None:
    with tempfile.TemporaryDirectory() as name, child("-m", "benchmarks.upstream") as (upstream, _):
        uvloop.run(count(f"http://127.0.0.1:{upstream}/v1", Path(name)))


if __name__ == "__main__":
    if sys.argv[1:]:
        port, name, times = sys.argv[1:]
        make_requests(port, name, times)
    else:
        main()
