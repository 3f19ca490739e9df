"""The servers that benchmarks.relay measures, each in front of the same upstream, and how each is started."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import psutil

from benchmarks.load import Endpoint
from benchmarks.measure import Server, warm_up
from benchmarks.processes import child, dragoman, until_listening

Started = tuple[int, psutil.Process]
FLOOR, OURS, UNLOGGED = "bare relay", "dragoman", "without the log"
CHAT = Endpoint("/chat", json.dumps({"message": "MESSAGE"}))
COMPLETIONS = Endpoint(
    "/v1/chat/completions",
    json.dumps({"model": "bench", "stream": True, "messages": [{"role": "user", "content": "MESSAGE"}]}),
)


@dataclass(frozen=True, slots=True)
class Subject:
    """`start` is given the upstream's base URL."""

    name: str
    start: Callable[[str], AbstractContextManager[Started]]
    endpoint: Endpoint = CHAT


@dataclass(frozen=True, slots=True)
class Rival:
    module: str
    package: str
    endpoint: Endpoint = CHAT


RIVALS = (
    Rival("with_openai", "openai"),
    Rival("with_agents", "openai-agents"),
    Rival("with_pydantic_ai", "pydantic-ai-slim"),
    Rival("with_litellm", "litellm", COMPLETIONS),
)


def ours(name: str = OURS, *flags: str, checkout: Path | None = None) -> Subject:
    return Subject(
        name, lambda upstream: dragoman("--model-url", upstream, "--model", "bench", *flags, checkout=checkout)
    )


def bare_relay() -> Subject:
    return Subject(FLOOR, partial(child, "-m", "benchmarks.floors.bare_relay"))


def unlogged() -> Subject:
    return Subject(UNLOGGED, partial(child, "-m", "benchmarks.floors.unlogged"))


def rivals(pythons: Sequence[Path]) -> list[Subject]:
    """Each runs on the first Python that has its package; their names have the versions."""
    return [rival(row, *installed(row.package, pythons)) for row in RIVALS]


def rival(row: Rival, python: Path, version: str) -> Subject:
    @contextmanager
    def start(upstream: str) -> Iterator[Started]:
        with child("-m", f"benchmarks.rivals.{row.module}", upstream, python=str(python)) as (port, process):
            until_listening(port)
            yield port, process

    return Subject(f"{row.package} {version}", start, row.endpoint)


def installed(package: str, pythons: Sequence[Path]) -> tuple[Path, str]:
    look = f"from importlib.metadata import version; print(version({package!r}))"
    for python in pythons:
        found = subprocess.run([python, "-c", look], capture_output=True, text=True)
        if not found.returncode:
            return python, found.stdout.strip()
    raise SystemExit(f"{package} is in none of: {', '.join(map(str, pythons))}. `make rivals` installs it.")


@contextmanager
def servers(subjects: Sequence[Subject]) -> Iterator[dict[str, Server]]:
    """All of them, newly started and warmed up, before one upstream."""
    os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # else it asks the network for prices
    with ExitStack() as stack:
        port, upstream = stack.enter_context(child("-m", "benchmarks.upstream"))
        started = {}
        for subject in subjects:
            server = Server(
                *stack.enter_context(subject.start(f"http://127.0.0.1:{port}/v1")), upstream, subject.endpoint
            )
            warm_up(server)
            started[subject.name] = server
        yield started
