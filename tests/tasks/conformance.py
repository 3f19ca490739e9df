"""`make conformance`: the protocol's own suite against our manager, and a table of what came out.

With `--server` it asks our own server the scenarios that need no tools, prompts and resources made for the suite.

The suite starts all its clients at once, which two cores do not bear: here two scenarios run at a time.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import runpy
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import AsyncMock

from app.models.scripted import Scripted
from routes.mcp_server.application import hosted
from tests import ROOT
from tests.support.server.serving import serving

SUITE = ROOT / ".cache/mcp/conformance/node_modules/@modelcontextprotocol/conformance/dist/index.js"
NODE_20 = ROOT / "fixtures/mcp/conformance/node20.mjs"
REVISIONS = ("2025-11-25", "2026-07-28")
SERVER = {
    "2025-11-25": (
        *("server-initialize", "server-session-lifecycle", "ping", "tools-list", "resources-list"),
        *("server-sse-multiple-streams", "server-sse-polling", "dns-rebinding-protection"),
    ),
    "2026-07-28": (
        *("tools-list", "resources-list", "sep-2164-resource-not-found", "server-sse-multiple-streams"),
        *("dns-rebinding-protection", "http-header-validation", "input-required-result-unsupported-methods"),
    ),
}
CLIENT = f"{sys.executable} -m tests.tasks.conformance_client"
AT_ONCE = 2
LIMIT_S = 120


@dataclass(frozen=True, slots=True)
class Outcome:
    revision: str
    scenario: str
    passed: bool
    seconds: float
    said: str


async def suite(*words: str) -> tuple[int, str]:
    process = await asyncio.create_subprocess_exec(
        *("node", "--import", str(NODE_20), str(SUITE), *words),
        cwd=ROOT,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    said, _ = await process.communicate()
    return process.returncode or 0, said.decode(errors="replace")


async def scored(revision: str, kind: str = "Client") -> list[str]:
    """The scenarios that a revision requires of clients, or of servers."""
    _, said = await suite("list", "--requirements", revision)
    listed = re.search(rf"^{kind} scenarios.*?\n((?:  - .*\n)+)", said, re.MULTILINE)
    if not listed:
        sys.exit(f"The suite lists nothing for {revision}:\n{said}")
    return re.findall(r"- (\S+)", listed[1])


async def run(revision: str, scenario: str, turn: asyncio.Semaphore, folder: str, url: str) -> Outcome:
    tried = ("server", "--url", url) if url else ("client", "--command", CLIENT)
    words = (*tried, "--scenario", scenario, "--spec-version", revision)
    async with turn:
        started = time.monotonic()
        code, said = await suite(*words, "--timeout", str(LIMIT_S * 1000), "--output-dir", folder)
        outcome = Outcome(revision, scenario, code == 0, time.monotonic() - started, said)
    print(f"{'pass' if outcome.passed else 'FAIL'}  {revision}  {scenario}  {outcome.seconds:.1f} s", flush=True)
    return outcome


@asynccontextmanager
async def our_server(fixture: str) -> AsyncGenerator[str, None]:
    """The address of our own server; a `fixture` answers in place of our handlers, over the same route."""
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        served = await stack.enter_async_context(serving(folder, Scripted([])))
        if fixture:
            answers = await stack.enter_async_context(hosted(runpy.run_path(fixture)["mcp"]._lowlevel_server))
            served.services.mcp_server.get = AsyncMock(return_value=answers)  # type: ignore[method-assign]
        yield str(served.client.base_url.join("/mcp"))


async def main(revisions: Sequence[str], only: str, *, server: bool, fixture: str) -> int:
    started = time.monotonic()
    turn = asyncio.Semaphore(AT_ONCE)
    with tempfile.TemporaryDirectory() as folder:
        kind = "Server" if fixture else "Client"
        names = SERVER if server and not fixture else {one: await scored(one, kind) for one in revisions}
        wanted = [(one, name) for one in revisions for name in names[one] if re.search(only, name)]
        async with our_server(fixture) if server or fixture else nullcontext("") as url:
            outcomes = await asyncio.gather(*(run(*one, turn, folder, url) for one in wanted))
    for outcome in outcomes:
        if not outcome.passed:
            print(f"\n--- {outcome.revision} {outcome.scenario}\n{outcome.said[-4000:]}")
    print("\n| protocol | passed | of | failed |\n|---|---|---|---|")
    for revision in revisions:
        here = [outcome for outcome in outcomes if outcome.revision == revision]
        failed = ", ".join(outcome.scenario for outcome in here if not outcome.passed)
        print(f"| {revision} | {sum(outcome.passed for outcome in here)} | {len(here)} | {failed or '-'} |")
    print(f"\n{time.monotonic() - started:.0f} s")
    return 0 if outcomes and all(outcome.passed for outcome in outcomes) else 1


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", default="", help="a regular expression that the scenario's name must match")
    parser.add_argument("--revision", choices=REVISIONS)
    parser.add_argument("--server", action="store_true", help="ask our own server instead")
    parser.add_argument("--fixture", default="", help="the server.py of the SDK's everything-server: all scenarios")
    chosen = parser.parse_args()
    revisions = [chosen.revision] if chosen.revision else REVISIONS
    sys.exit(asyncio.run(main(revisions, chosen.only, server=chosen.server, fixture=chosen.fixture)))
