"""Try real model servers through dragoman: `python -m tests.servers [NAME ...] [--record]`.

Each has an environment of its own in `.cache/servers`, installed once, as `fixtures/servers` pins it. One that cannot
be had is skipped with the reason. With `--record` their answers are kept in `fixtures/providers`.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from contextlib import nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests import ROOT
from tests.servers.catalogue import MODEL, SERVERS, Server
from tests.servers.checks import CHECKS, LIMIT_S, Check, Tried
from tests.servers.environments import Unavailable, prepare, version_of
from tests.servers.forced_replies import RESULT
from tests.servers.recorder import Recorder, recording
from tests.servers.running import NotStarted, run_server
from tests.support.server.serving import serving

FIXTURES = ROOT / "fixtures/providers"


async def try_check(server: Server, check: Check, recorder: Recorder) -> str:
    """Return what was seen, after a `no: ` where that is not as it should be."""
    recorder.exchanges.clear()
    named = {"model_url": recorder.base_url, "model": server.model, "model_key": server.key}
    flags: dict[str, Any] = {**named, **check.flags}
    with TemporaryDirectory() as folder:
        try:
            async with asyncio.timeout(LIMIT_S), serving(Path(folder), None, **flags) as served:
                served.client.timeout = LIMIT_S
                (Path(folder) / "work/note.txt").write_text(f"{RESULT}\n")
                return await check.run(Tried(served, recorder, server.model))
        except (AssertionError, TimeoutError, LookupError, ValueError) as error:
            return f"no: {type(error).__name__} {str(error)[:600]}"


def keep(server: Server, check: Check, recorder: Recorder) -> None:
    """Write the answer that a check is about: the first that is no refusal, or the first that is one."""
    if name := server.kept.get(check.name):
        wanted = [one for one in recorder.chats if one.ended and (one.status == 200) is name.endswith(".sse")]
        if wanted:
            (FIXTURES / server.folder).mkdir(exist_ok=True)
            (FIXTURES / server.folder / name).write_bytes(wanted[0].body.replace(server.model.encode(), MODEL.encode()))


async def try_server(server: Server, options: argparse.Namespace) -> bool:
    """Print a row for each check; return whether all were as they should be."""
    prepare(server)
    print(f"{server.name} {version_of(server)}", flush=True)
    good = True
    running = nullcontext(options.url) if options.url else run_server(server)
    async with running as base_url, recording(base_url) as recorder:
        for check in CHECKS:
            if options.only and check.name not in options.only:
                continue
            if check.name in server.lacks:
                print(f"  {check.name:22} cannot: {server.lacks[check.name]}")
                continue
            seen = await try_check(server, check, recorder)
            good = good and not seen.startswith("no: ")
            print(f"  {check.name:22} {seen}", flush=True)
            if options.record:
                keep(server, check, recorder)
    return good


async def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.servers", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(one.name for one in SERVERS)}")
    parser.add_argument("--only", action="append", metavar="CHECK", help="the only check; may be given several times")
    parser.add_argument("--record", action="store_true", help="keep the answers in fixtures/providers")
    parser.add_argument("--url", default="", help="the base URL of a server that runs already")
    options = parser.parse_args(arguments)
    good = True
    for server in SERVERS:
        if not options.names or server.name in options.names:
            try:
                good = await try_server(server, options) and good
            except Unavailable as missing:
                print(f"{server.name} is skipped: {missing}")
            except NotStarted as ended:
                print(f"{server.name} did not start: {ended}")
                good = False
    return not good


if __name__ == "__main__":
    sys.exit(asyncio.run(main(sys.argv[1:])))
