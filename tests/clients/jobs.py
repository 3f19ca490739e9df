"""Jobs of a client's script, read from standard input, and what the client saw of each, written to standard output.

A script runs in the environment of its client alone: this module needs nothing but Python.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NoReturn, TypeVar
from urllib.request import urlopen

JOB_LIMIT_S = 45
# Of their own: the loop looks names up in its few threads.
WAITING = ThreadPoolExecutor(max_workers=64)
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Job:
    """One conversation: `prompts` are its user messages, answered in turn, `tools` those that the client offers.

    With `leave` the client goes after the first words; without a stream, when that address answers: then the model has
    begun. With a `verdict` it approves calls of the server's, or not.
    """

    id: str
    way: str
    url: str
    key: str
    model: str
    prompts: Sequence[str]
    tools: Sequence[str] = ()
    picture: str = ""
    leave: str = ""
    verdict: bool | None = None
    parameters: Mapping[str, Any] = field(default_factory=dict)

    @property
    def declared(self) -> dict[str, dict[str, Any]]:
        """The tools' descriptions and schemas, by name."""
        tools: dict[str, dict[str, Any]] = json.loads((Path(__file__).parent / "tools.json").read_text())
        return {name: tools[name] for name in self.tools}

    def content(self, prompt: str, text: str, picture: Callable[[str], dict[str, Any]]) -> Any:
        """A user message: plain text, or parts of this type with the picture behind the text."""
        if not self.picture:
            return prompt
        return [{"type": text, "text": prompt}, picture(self.picture)]


class Left(Exception):
    """The client went away, as it was to."""


@dataclass(slots=True)
class Seen:
    """All that a client understood. `texts` are the answers' texts, one a round; `finish` is the last one's reason."""

    texts: list[str] = field(default_factory=list)
    thoughts: list[str] = field(default_factory=list)
    calls: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    finish: str | None = None
    usage: dict[str, int] | None = None
    error: dict[str, Any] | None = None
    left: float | None = None  # when it went, as time.time()

    def add(self, text: str | None, thought: str | None = None) -> None:
        if text:
            self.texts.append(text)
        if thought:
            self.thoughts.append(thought)

    def run(self, name: str, arguments: str | Mapping[str, Any]) -> str:
        """Run a tool and keep its call."""
        given = json.loads(arguments) if isinstance(arguments, str) else dict(arguments)
        self.calls.append((name, given))
        return TOOLS[name](**given) if name in TOOLS else f"There is no tool {name}."

    def leave(self) -> NoReturn:
        """Go away: what is around closes the client's stream."""
        self.left = time.time()
        raise Left


def weather(city: str) -> str:
    """The weather in a city."""
    return f"12 degrees in {city}"


def add(a: int, b: int) -> str:
    """The sum of two whole numbers."""
    return str(a + b)


def note(text: str, tags: list[str], urgent: bool, size: int) -> str:
    """Keep a note."""
    return f"noted {hashlib.sha256(text.encode()).hexdigest()[:12]} {len(tags)} {urgent} {size}"


async def whole(job: Job, seen: Seen, answer: Awaitable[T]) -> T:
    """An answer that is not streamed. A client that is to leave does so while waiting for it."""
    waiting = asyncio.ensure_future(answer)
    if job.leave:
        begun = partial(urlopen, job.leave, timeout=JOB_LIMIT_S)
        with await asyncio.get_running_loop().run_in_executor(WAITING, begun):
            waiting.cancel()
        await asyncio.wait({waiting})
        seen.leave()
    return await waiting


TOOLS: Mapping[str, Callable[..., str]] = {"weather": weather, "add": add, "note": note}
Ask = Callable[[Job, Seen], Awaitable[None]]


def main(ways: Mapping[str, Ask]) -> None:
    asyncio.run(_all(ways, json.load(sys.stdin)))


async def _all(ways: Mapping[str, Ask], request: dict[str, Any]) -> None:
    free = asyncio.Semaphore(request["at_once"])

    async def one(job: Job, seen: Seen) -> None:
        async with free, asyncio.timeout(JOB_LIMIT_S):
            await ways[job.way](job, seen)

    jobs = [Job(**fields) for fields in request["jobs"]]
    seen = [Seen() for _ in jobs]
    ended = await asyncio.gather(*map(one, jobs, seen), return_exceptions=True)
    for job, each, end in zip(jobs, seen, ended, strict=True):
        if end is not None and not isinstance(end, Left):
            each.error = described(end)
        print(json.dumps({"id": job.id} | asdict(each)))


def described(error: BaseException) -> dict[str, Any]:
    """Of the error and what caused it: names, the HTTP status and body, and all messages."""
    chain = [error]
    while len(chain) < 8 and (before := chain[-1].__cause__ or chain[-1].__context__):
        chain.append(before)
    status = next((one.status_code for one in chain if hasattr(one, "status_code")), None)
    code = next((code for one in chain if isinstance(code := getattr(one, "code", None), str)), None)
    told = "\n".join(f"{type(one).__name__}: {one}" for one in chain)
    return {"kind": type(error).__name__, "status": status, "code": code, "message": told[:2000]}
