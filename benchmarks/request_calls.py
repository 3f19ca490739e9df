"""Function calls of the event loop for a request of one token, Python's and C's: a count that no busy machine changes.

The server is in this process and the model's is `benchmarks.upstream`, so that the whole path is counted but the work
of other threads. `python -m benchmarks request_calls`.
"""

from __future__ import annotations

import asyncio
import cProfile
import pstats
import sys
import tempfile
from pathlib import Path

import httpx2
import uvicorn
import uvloop

from app.config.settings import Settings
from benchmarks.processes import child
from benchmarks.upstream import order
from routes.access.rate_limits import BoundedProtocol
from routes.server import connections_of, create_server
from routes.services import open_services
from routes.workers.listening import listen

WARM, COUNTED = 20, 200
TURN = {"message": order(1, 0)}


async def count(url: str, folder: Path) -> None:
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
        await requests(port, WARM)
        profile = cProfile.Profile()
        profile.enable()
        await requests(port, COUNTED)
        profile.disable()
        server.should_exit = True
        await serving
    stats: dict[tuple[str, int, str], tuple[int, int]] = pstats.Stats(profile).stats  # type: ignore[attr-defined]
    of_c = sum(row[1] for (file, *_), row in stats.items() if file == "~") / COUNTED
    of_python = sum(row[1] for (file, *_), row in stats.items() if file != "~") / COUNTED
    print(f"calls of a one-token request: {of_python + of_c:,.0f}, of them {of_python:,.0f} of Python functions")


async def requests(port: int, times: int) -> None:
    """Make requests one after the other, each on a connection of its own, from another process as a client's are."""
    client = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "benchmarks.request_calls", str(port), str(times)
    )
    if await client.wait():
        raise RuntimeError("a request failed")


def make_requests(port: int, times: int) -> None:
    for _ in range(times):
        with httpx2.stream("POST", f"http://127.0.0.1:{port}/chat", json=TURN) as response:
            text = response.read().decode()
        if "run.finished" not in text:
            raise RuntimeError(text)


def main() -> None:
    with tempfile.TemporaryDirectory() as name, child("-m", "benchmarks.upstream") as (upstream, _):
        uvloop.run(count(f"http://127.0.0.1:{upstream}/v1", Path(name)))


if __name__ == "__main__":
    if sys.argv[1:]:
        make_requests(*map(int, sys.argv[1:]))
    else:
        main()
