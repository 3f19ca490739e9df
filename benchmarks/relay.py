"""What `POST /chat` costs, against a bare byte relay in the same run: CPU per token, latency, requests, memory.

`python -m benchmarks.relay ROUNDS`: the median of so many rounds, 1 unless given. `--rivals PYTHON`: beside what other
people use, which that Python has installed.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from benchmarks.load import Asked, Load, Measured, measure, median
from benchmarks.processes import child, dragoman, until_listening

LOADS = (
    Load("one stream", 1, 120, 30),
    Load("paced", 300, 300, 30),
    Load("flat out", 4, 40_000, 0),
    Load("requests", 8, 8, 0, turns=40),
)
BESIDE_RIVALS = Load("paced", 100, 150, 10)  # what the slowest of them still keeps up with
COMPLETION = b'{"model": "bench", "stream": true, "messages": [{"role": "user", "content": "go"}]}'
COLUMNS = (
    f"{'CPU us/token':>24}{'ratio':>7}{'p50 ms':>9}{'ratio':>7}{'p99 ms':>9}{'tokens/s':>10}{'delivered':>11}"
    f"{'us/answer':>11}{'ratio':>7}{'KB/stream':>11}{'ratio':>7}"
)


@dataclass(frozen=True, slots=True)
class Server:
    port: int
    process: psutil.Process
    asked: Asked = field(default_factory=Asked)


@contextmanager
def servers(load: Load, rivals: str | None = None) -> Iterator[dict[str, Server]]:
    """The floor first."""
    with ExitStack() as stack:
        upstream, _ = stack.enter_context(child("-m", "benchmarks.upstream", str(load.tokens), str(load.rate)))
        url = f"http://127.0.0.1:{upstream}/v1"
        ours = ("--model-url", url, "--model", "bench")
        started = {
            "bare relay": Server(*stack.enter_context(child("-m", "benchmarks.bare_relay", url))),
            "dragoman": Server(*stack.enter_context(dragoman(*ours))),
        }
        if rivals is None:
            started["its stock client"] = Server(*stack.enter_context(dragoman(*ours, "--transport", "httpx2")))
        else:
            started |= others(stack, url, rivals)
        yield started


def others(stack: ExitStack, url: str, python: str) -> dict[str, Server]:
    folder = stack.enter_context(tempfile.TemporaryDirectory())
    os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # else it asks the network for prices

    def rival(module: str, *more: str) -> tuple[int, psutil.Process]:
        return stack.enter_context(child("-m", f"benchmarks.rivals.{module}", url, *more, python=python))

    started = {
        "openai-agents": Server(*rival("with_agents")),
        "pydantic-ai": Server(*rival("with_pydantic_ai")),
        "LiteLLM": Server(*rival("with_litellm", folder), Asked("/v1/chat/completions", COMPLETION)),
    }
    for server in started.values():
        until_listening(server.port)
    return started


def line(name: str, got: Measured, floor: Measured) -> str:
    return (
        f"{name:17}{got.cpu_us:7.1f}{got.cpu_us / floor.cpu_us:7.2f}{got.p50_ms:9.2f}{got.p50_ms / floor.p50_ms:7.2f}"
        f"{got.p99_ms:9.2f}{got.tokens_per_s:10,.0f}{got.delivered:11.1%}{got.request_us:11,.0f}"
        f"{got.request_us / floor.request_us:7.1f}{got.grown_kb:11.0f}{got.grown_kb / max(floor.grown_kb, 1):7.1f}"
    )


def show(load: Load, rounds: int, rivals: str | None = None) -> None:
    print(f"\n{load.name}: {load.streams} x {load.turns} answers of {load.tokens} tokens, {load.rate or 'all'}/s each")
    print(COLUMNS)
    with servers(load, rivals) as started:
        got = [
            {name: measure(server.port, server.process, load, server.asked) for name, server in started.items()}
            for _ in range(rounds)
        ]
    floor = median([one["bare relay"] for one in got])
    for name in started:
        print(line(name, median([one[name] for one in got]), floor), flush=True)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("rounds", type=int, nargs="?", default=1)
    parser.add_argument(
        "--rivals", help="a Python that has them installed", type=lambda path: str(Path(path).absolute())
    )
    wanted = parser.parse_args(arguments or [])
    for load in LOADS if wanted.rivals is None else (BESIDE_RIVALS,):
        show(load, wanted.rounds, wanted.rivals and str(wanted.rivals.absolute()))


if __name__ == "__main__":
    main(sys.argv[1:])
