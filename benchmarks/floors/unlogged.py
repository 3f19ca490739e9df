"""The same server with a log that lives in memory only: what the durable log costs is the difference.

python -m benchmarks.floors.unlogged MODEL_URL: prints its port.
"""

from __future__ import annotations

import asyncio
import socket
import sys
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import uvicorn

from app.config.settings import load_settings
from app.storage.changes import Change
from app.storage.runs import EventRow, RunRow
from app.storage.sqlite.store import SQLiteStore
from app.storage.tokens import TokenRow
from routes.access.rate_limits import BoundedProtocol
from routes.server import create_server
from routes.services import open_services


class ForgetfulStore(SQLiteStore):
    """Keeps events in lists, runs in a dict, and forgets the rest."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._events: defaultdict[str, list[EventRow]] = defaultdict(list)
        self._runs: dict[str, RunRow] = {}

    async def write(self, changes: Sequence[Change]) -> None:
        for change in changes:
            match change:
                case EventRow():
                    self._events[change.run].append(change)
                case RunRow():
                    self._runs[change.id] = change

    async def run(self, run: str) -> RunRow | None:
        return self._runs.get(run)

    async def events(self, run: str, after: int, limit: int) -> list[EventRow]:
        return self._events[run][after : after + limit]

    async def tokens(self) -> list[TokenRow]:
        return []


async def main(model_url: str, folder: str) -> None:
    flags = {"model_url": model_url, "model": "bench", "data_dir": f"{folder}/data", "workspace": f"{folder}/work"}
    settings = load_settings(flags, {"HOME": folder}).settings
    async with open_services(settings, open_store=ForgetfulStore.open) as services:
        listener = socket.create_server(("127.0.0.1", 0), backlog=2048)
        print(listener.getsockname()[1], flush=True)
        app = create_server(services)
        config = uvicorn.Config(app, lifespan="off", http=BoundedProtocol, access_log=False, log_level="warning")
        await uvicorn.Server(config).serve([listener])


if __name__ == "__main__":
    with (
        tempfile.TemporaryDirectory() as place,
        asyncio.Runner(loop_factory=uvicorn.Config("").get_loop_factory()) as runner,
    ):
        runner.run(main(sys.argv[1], place))
