from __future__ import annotations

import asyncio
from dataclasses import replace
from itertools import pairwise

import psutil
import pytest

from benchmarks.load import Load, Reader, Received, read_all
from benchmarks.measure import Measured, measured, median
from benchmarks.rows import LOADS, ROWS, Round, report
from benchmarks.subjects import CHAT, FLOOR, OURS
from benchmarks.upstream import Answers, now_us

pytestmark = pytest.mark.anyio

HEAD = b"HTTP/1.1 200 OK\r\n\r\n"
TEXT = b'{"text": "1234567 1234568 "}'
ANSWER = b"event: text.delta\ndata: " + TEXT + b"\n\nevent: run.finished\ndata: " + TEXT + b"\n\n"
CALM = Measured(20, 100, 0.5, 1, 1, 1, 9000, 10, 1, 0.2, 0.1, 0.1, 0)


def rounds(*ours: Measured) -> list[Round]:
    return [{("paced", FLOOR): CALM, ("paced", OURS): one} for one in ours]


def reached(name: str, *ours: Measured) -> str:
    line = next(line for line in report(rounds(*ours), OURS) if line.startswith(name))
    return line.partition("  ")[2].split("  ")[-1].strip()


async def test_a_reader_counts_the_same_in_any_blocks() -> None:
    data = HEAD + ANSWER + b"\r\n0\r\n\r\n"
    for cut in range(len(data)):
        received = Received(full_us=(0, now_us() * 2))
        reader = Reader(b"", received)
        for block in (data[:cut], data[cut:]):
            reader.data_received(block)
        reader.connection_lost(None)
        assert (received.tokens, received.in_full, received.answers, len(received.firsts_ms)) == (2, 2, 1, 1), cut
        assert await reader.over is None


async def test_an_answer_that_breaks_off_is_none() -> None:
    received = Received()
    reader = Reader(b"", received)
    reader.data_received(HEAD + ANSWER)
    reader.connection_lost(ConnectionResetError())
    assert (received.tokens, received.answers) == (2, 0)


@pytest.mark.parametrize(
    "load", [Load(8, 5, 100), Load(2, 3001, 0), Load(1, 1, 0, turns=3)], ids=["paced", "flat", "turns"]
)
async def test_all_that_a_load_asks_for_is_streamed_and_read(load: Load) -> None:
    server = await asyncio.get_running_loop().create_server(Answers, "127.0.0.1", 0)
    async with server:
        received = await read_all(server.sockets[0].getsockname()[1], load, CHAT, psutil.Process())
    assert received.tokens == len(received.waits_ms) == load.streams * load.turns * load.tokens
    assert received.answers == len(received.firsts_ms) == load.streams * load.turns
    assert all(wait >= 0 for wait in received.waits_ms)


async def test_a_server_that_is_silent_is_cut_off() -> None:
    silent = await asyncio.get_running_loop().create_server(asyncio.Protocol, "127.0.0.1", 0)
    load = Load(streams=3, tokens=1, rate=0, limit_s=0.05)
    async with silent:
        received = await read_all(silent.sockets[0].getsockname()[1], load, CHAT, psutil.Process())
    assert (received.tokens, received.answers, len(received.firsts_ms)) == (0, 0, 3)
    with pytest.raises(RuntimeError, match="no token"):
        measured(received, load, 1.0, 1.0, (0, 0, 0, 0))


async def test_a_stream_that_could_not_connect_in_time_is_late() -> None:
    received = Received()
    Reader(b"", received).cut_off()
    assert (received.tokens, len(received.firsts_ms)) == (0, 1)


@pytest.mark.parametrize("name", ["paced", "more"])
def test_tokens_of_a_load_are_evenly_spread(name: str) -> None:
    load = LOADS[name]
    phases = sorted(load.start_s(stream) * load.rate % 1 for stream in range(load.streams))
    gaps = [after - before for before, after in pairwise(phases)]
    assert min(gaps) == pytest.approx(max(gaps)) == pytest.approx(1 / load.streams)


def test_what_is_late_is_not_delivered() -> None:
    load = Load(streams=10, tokens=31, rate=10)
    opens, closes = load.full_s
    received = Received(in_full=0, tokens=310, answers=10, waits_ms=[1.0], firsts_ms=[1.0], rss=[1])
    assert (opens, closes) == pytest.approx((3.1, 3.0)), "too short: no time when all are open"
    load = replace(load, tokens=61)
    received.in_full = 145
    assert measured(received, load, 1.0, 7.0, (0, 0, 0, 0)).delivered == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("token_us", "p50_ms", "goal"),
    [(50, 0.6, "aim"), (70, 1.5, "firm"), (71, 1.5, "missed"), (50, 2.6, "not calm")],
    ids=["aim", "firm", "missed", "queue"],
)
def test_a_row_says_which_goal_is_reached(token_us: float, p50_ms: float, goal: str) -> None:
    assert reached("CPU per token", replace(CALM, token_us=token_us, p50_ms=p50_ms)) == goal


def test_one_round_with_a_queue_is_said() -> None:
    assert reached("CPU per token", CALM, CALM, replace(CALM, delivered=0.9)) == "not calm"
    assert reached("delivered, 300", CALM, CALM, replace(CALM, delivered=0.9)) == "firm"


def test_ratios_are_those_of_the_same_round() -> None:
    slow = {("paced", FLOOR): replace(CALM, token_us=40), ("paced", OURS): replace(CALM, token_us=80)}
    line = next(line for line in report([*rounds(replace(CALM, token_us=60)), slow], OURS) if "CPU per token" in line)
    assert line.split()[3:8] == ["70.00", "30.00", "2.50", "2.00", "3.00"]


def test_each_row_has_a_load_and_a_field_that_is_measured() -> None:
    assert {row.load for row in ROWS} == LOADS.keys()
    assert all(hasattr(CALM, row.value) for row in ROWS)
    assert median([CALM]) == CALM
