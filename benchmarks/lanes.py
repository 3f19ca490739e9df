"""What the wire formats of other clients cost beside the native stream of the same server, in the same rounds.

The agent behind a lane does what it does behind POST /chat; a relay has no loop, prompt or session to pay for.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from msgspec import Struct

from benchmarks.load import Endpoint, Load
from benchmarks.measure import Measured, measure
from benchmarks.subjects import CHAT, OURS, ours, servers

AGENT, RELAY = "dragoman/agent", "bench"
TURN = [{"role": "user", "content": "MESSAGE"}]
PARTS = [{"id": "m1", "role": "user", "parts": [{"type": "text", "text": "MESSAGE"}]}]
STREAMS = Load(streams=100, tokens=150, rate=30)
REQUESTS = Load(streams=2, tokens=1, rate=0, turns=100)
LANE_GOAL, RELAY_GOAL = 1.1, 0.7
ROUNDS = 3


class Row(Struct, frozen=True):
    """An endpoint of the server. `goal`: the most that it may cost, as a ratio to the native stream."""

    name: str
    endpoint: Endpoint
    goal: float | None


def row(name: str, path: str, end: str, goal: float, **body: Any) -> Row:
    return Row(name, Endpoint(path, json.dumps(body), end.encode(), holds_space=True), goal)


def chat(model: str, name: str, goal: float) -> Row:
    return row(name, "/v1/chat/completions", '"finish_reason":"stop"', goal, model=model, stream=True, messages=TURN)


def responses(model: str, name: str, goal: float, **more: Any) -> Row:
    end = "response.output_text.done"
    return row(name, "/v1/responses", end, goal, model=model, stream=True, input="MESSAGE", **more)


def messages(model: str, name: str, goal: float) -> Row:
    end = "content_block_stop"
    return row(name, "/v1/messages", end, goal, model=model, stream=True, max_tokens=1000, messages=TURN)


ROWS = (
    Row("native", CHAT, None),
    chat(AGENT, "chat completions, agent", LANE_GOAL),
    responses(AGENT, "responses, agent", LANE_GOAL),
    messages(AGENT, "messages, agent", LANE_GOAL),
    row(
        "ag-ui",
        "/ag-ui",
        "TEXT_MESSAGE_END",
        LANE_GOAL,
        runId="r",
        messages=[{"id": "m1"} | TURN[0]],
        tools=[],
        context=[],
        state={},
        forwardedProps={},
    ),
    row("ui message stream", "/ui-message-stream", "text-end", LANE_GOAL, messages=PARTS, trigger="submit-message"),
    chat(RELAY, "chat completions, relay", RELAY_GOAL),
    responses(RELAY, "responses, relay, not stored", RELAY_GOAL, store=False),
    messages(RELAY, "messages, relay", RELAY_GOAL),
)


def ratios(got: Sequence[dict[str, Measured]], name: str, field: str) -> list[float]:
    return [getattr(one[name], field) / getattr(one["native"], field) for one in got]


def spread(values: Sequence[float]) -> str:
    return f"{statistics.median(values):.2f} ({min(values):.2f} to {max(values):.2f})"


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS
    streams, requests = list[dict[str, Measured]](), list[dict[str, Measured]]()
    with servers([ours()]) as started:
        server = started[OURS]
        for _ in range(rounds):
            for load, got in ((STREAMS, streams), (REQUESTS, requests)):
                got.append({one.name: measure(replace(server, endpoint=one.endpoint), load) for one in ROWS})
    print(
        f"{STREAMS.streams} streams of {STREAMS.rate} tokens/s, and one-token requests; CPU, beside the native stream"
    )
    print(
        f"{'':30}{'us/token':>9}  {'ratio':22}{'us/request':>11}  {'ratio':22}{'goal':>5}{'p50 ms':>8}{'delivered':>11}"
    )
    for one in ROWS:
        token, request = (statistics.median([each[one.name].token_us for each in got]) for got in (streams, requests))
        print(
            f"{one.name:30}{token:9.1f}  {spread(ratios(streams, one.name, 'token_us')):22}"
            f"{request:11.0f}  {spread(ratios(requests, one.name, 'answer_us')):22}{one.goal or '':>5}"
            f"{statistics.median([each[one.name].p50_ms for each in streams]):8.2f}"
            f"{statistics.median([each[one.name].delivered for each in streams]):11.1%}"
        )


if __name__ == "__main__":
    main()
