"""`make conformance`: the protocol's own suite against our manager, and a table of what came out.

The suite starts all its clients at once, which two cores do not bear: here two scenarios run at a time.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass

from tests import ROOT

SUITE = ROOT / ".cache/mcp/conformance/node_modules/@modelcontextprotocol/conformance/dist/index.js"
NODE_20 = ROOT / "fixtures/mcp/conformance/node20.mjs"
REVISIONS = ("2025-11-25", "2026-07-28")
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


async def scored(revision: str) -> list[str]:
    """The client's scenarios that a revision requires."""
    _, said = await suite("list", "--requirements", revision)
    listed = re.search(r"^Client scenarios.*?\n((?:  - .*\n)+)", said, re.MULTILINE)
    if not listed:
        sys.exit(f"The suite lists nothing for {revision}:\n{said}")
    return re.findall(r"- (\S+)", listed[1])


async def run(revision: str, scenario: str, turn: asyncio.Semaphore, folder: str) -> Outcome:
    client = f"{sys.executable} -m tests.tasks.conformance_client"
    words = ("client", "--command", client, "--scenario", scenario, "--spec-version", revision)
    async with turn:
        started = time.monotonic()
        code, said = await suite(*words, "--timeout", str(LIMIT_S * 1000), "--output-dir", folder)
        outcome = Outcome(revision, scenario, code == 0, time.monotonic() - started, said)
    print(f"{'pass' if outcome.passed else 'FAIL'}  {revision}  {scenario}  {outcome.seconds:.1f} s", flush=True)
    return outcome


async def main(revisions: Sequence[str], only: str) -> int:
    started = time.monotonic()
    turn = asyncio.Semaphore(AT_ONCE)
    with tempfile.TemporaryDirectory() as folder:
        wanted = [(one, name) for one in revisions for name in await scored(one) if re.search(only, name)]
        outcomes = await asyncio.gather(*(run(*one, turn, folder) for one in wanted))
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
    chosen = parser.parse_args()
    revisions = [chosen.revision] if chosen.revision else REVISIONS
    sys.exit(asyncio.run(main(revisions, chosen.only)))
