"""`make fire`: deploy under fire. Three servers behind nginx on PostgreSQL, replaced one after the other.

Meanwhile clients of every lane follow runs of every kind, and in between servers are killed and frozen, the database
restarts and the network stalls. It prints the schedule of faults and a table, and fails if an event was lost or
doubled, a call was made twice, a run has not exactly one end, or a client waits for ever. How long a silence lasts is
in the table only: that depends on the machine.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
import tempfile
import time
from collections.abc import Coroutine, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from tests import ROOT
from tests.support.databases.postgres import Cluster, cluster
from tests.support.fire import report
from tests.support.fire.faults import Done, Fire, rage
from tests.support.fire.kinds import ENDS, KINDS, STARTED, UNFINISHED, Load, faults_of_effects
from tests.support.fire.servers import ENDS_S, Stage, model_server, stage
from tests.support.fire.trees import FOLDER, LAST_RELEASE, released
from tests.support.fire.watching import Watch
from tests.support.mcp.tasks import ERAS, TaskServer
from tests.support.replicas.servers import LOOK_S, passed

LEASE_S = 3.0
PAUSE_S = 0.05  # between two tokens
FLAGS = ("--model", "m", "--tool-calls", "native", "--unsafe-no-sandbox")
CONFIG = 'tools = [{match = "mcp__s__*", role = "user", risk = "write", approval = "never", untrusted = false}]\n'
ENDS_ALL_S = 120.0  # for what is left when the fire is out
ENVIRON = {
    "DRAGOMAN_LEASE_S": str(LEASE_S),
    "DRAGOMAN_SHUTDOWN_GRACE_S": "1",
    "DRAGOMAN_APPROVAL_ADMIN": "auto",
    "DRAGOMAN_HELPERS": "true",
    "DRAGOMAN_GENERATED_TITLES": "never",
    "DRAGOMAN_MAX_SCHEDULES": "1000",
}


class Outcome(Struct):
    watches: list[Watch] = field(default_factory=list)
    faults: list[Done] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)  # what must not be
    start: float = field(default_factory=time.monotonic)
    still_s: float = 0.0

    def print(self) -> None:
        print(f"\n{report.runs_table(self.watches)}\n\n{report.faults_table(self.faults, self.watches)}")
        print(f"\n{report.silences(self.faults, self.watches, self.start)}")
        print(f"This program itself stood still for {self.still_s:.1f} s at most: so busy was the machine.")
        print(f"\n{report.refusals_table(self.watches)}\n")
        print(f"{report.errors_table(self.watches, self.start)}\n")
        print("\n".join(self.wrong) or "Nothing was lost, doubled, made twice or left without its end.", flush=True)


def burnt(folder: Path, words: Sequence[str]) -> Outcome:
    """The outcome of a fire with these arguments."""
    options = parsed(words)
    with ThreadPoolExecutor(1) as starter, cluster() as postgres:
        return asyncio.run(_until_stopped(_burn(folder, postgres, starter, options)))


async def _until_stopped(burning: Coroutine[Any, Any, Outcome]) -> Outcome:
    """SIGTERM ends it as Ctrl-C does: with its servers. Raises CancelledError."""
    task = asyncio.ensure_future(burning)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    return await task


async def _burn(folder: Path, postgres: Cluster, starter: Executor, options: argparse.Namespace) -> Outcome:
    old, why = released(options.last)
    print(f"From {options.last} to this tree, seed {options.seed}, in {folder}." + f" {why}." * bool(why), flush=True)
    outcome, mcp = Outcome(), TaskServer(ERAS[0])
    (folder / "fire.toml").write_text(CONFIG)
    flags = (*FLAGS, "--config", str(folder / "fire.toml"), "--mcp-config", str(mcp.listed_in(folder)))
    async with mcp.started() as requests, model_server(PAUSE_S) as model:
        async with stage(folder, postgres, old, (*flags, "--model-url", model), ENVIRON) as made:
            load, ticking = Load(made, folder), asyncio.create_task(_tick(outcome))
            outcome.watches = load.watches
            await _raging(Fire(made, LEASE_S, starter), load, options, outcome)
            await _check_ends(made, load, outcome)
            ticking.cancel()
            outcome.wrong += await faults_of_effects(folder, requests)
    outcome.wrong += [_told(one) for one in outcome.watches if one.is_wrong]
    outcome.wrong += [f"{one.who} did not end after SIGTERM" for one in outcome.faults if one.took_s >= ENDS_S]
    return outcome


def _told(one: Watch) -> str:
    words = f"{one.end or 'no end'}, lost {one.lost}, doubled {one.doubled}, last {one.received.last} {one.why}"
    servers = "new" if one.new else "mixed"
    return f"{one.kind} over {one.lane} ({servers} servers, {one.received.id}, {one.received.run}): {words}"


async def _raging(fire: Fire, load: Load, options: argparse.Namespace, outcome: Outcome) -> None:
    clients = [asyncio.create_task(load.run()) for _ in range(options.clients)]
    start = outcome.start = time.monotonic()

    def begun(fault: Done) -> None:
        if fault in outcome.faults:
            print(f"          ended after {fault.took_s:.1f} s, replaced after {time.monotonic() - fault.start:.1f} s")
            return
        outcome.faults.append(fault)
        print(f"{fault.start - start:6.1f} s  {fault.name} {fault.who}", flush=True)
        if sum(one.name == fault.name for one in outcome.faults) > len(fire.stage.members):
            load.is_new.set()

    await rage(fire, ROOT, options.seed, options.every, start + options.seconds, begun)
    enough = start + 3 * options.seconds
    while min(load.counts()[kind] for kind in KINDS) < options.runs and time.monotonic() < enough:
        await passed(1.0)
    load.is_over.set()
    _, late = await asyncio.wait(clients, timeout=ENDS_ALL_S)
    for one in late:
        one.cancel()
    for one in clients:
        if one not in late:
            one.result()


async def _tick(outcome: Outcome) -> None:
    while True:
        before = time.monotonic()
        await passed(LOOK_S)
        outcome.still_s = max(outcome.still_s, time.monotonic() - before)


async def _check_ends(made: Stage, load: Load, outcome: Outcome) -> None:
    """Every run of the database has one end, those of helpers, jobs and schedules among them."""
    import asyncpg

    connection = await asyncpg.connect(made.database_url)
    try:
        until = time.monotonic() + ENDS_ALL_S
        while (left := await connection.fetchval(UNFINISHED)) and time.monotonic() < until:
            await passed(LOOK_S)
        if left:
            outcome.wrong.append(f"{left} runs do not end")
        for run, state, ends in await connection.fetch(ENDS):
            outcome.wrong.append(f"{run} ({state}) has {ends} terminal events")
        for one in load.schedules:
            if (times := await connection.fetchval(STARTED, one)) > 1:
                outcome.wrong.append(f"schedule {one} began {times} runs")
    finally:
        await connection.close()


def parsed(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--seconds", type=float, default=60.0, help="how long it burns")
    parser.add_argument("--runs", type=int, default=0, help="runs of each kind at least")
    parser.add_argument("--clients", type=int, default=12, help="clients at a time")
    parser.add_argument("--every", type=float, default=10.0, help="seconds between two planned restarts")
    parser.add_argument("--seed", type=int, default=1, help="of the faults")
    parser.add_argument("--from", dest="last", default=LAST_RELEASE, help="git revision of the version before")
    options = parser.parse_args(words)
    for name in ("seconds", "clients", "every"):
        if getattr(options, name) <= 0:
            parser.error(f"--{name} is more than 0")
    return options


def main() -> int:
    parsed(sys.argv[1:])  # what it refuses needs no folder
    FOLDER.mkdir(parents=True, exist_ok=True)
    try:
        outcome = burnt(Path(tempfile.mkdtemp(prefix="run-", dir=FOLDER)), sys.argv[1:])
    except (KeyboardInterrupt, asyncio.CancelledError):
        print("Stopped: nothing has been judged.", file=sys.stderr)
        return 1
    outcome.print()
    return bool(outcome.wrong)


if __name__ == "__main__":
    sys.exit(main())
