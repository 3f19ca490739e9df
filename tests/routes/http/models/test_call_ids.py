"""Ids of native calls: a server gets its own back byte for byte, all others get ids that they take."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from app.core.provider import Provider
from app.models.wire.call_ids import id_for_client, unpacked
from tests.support.lanes.native_clients import LANES, MODEL, TOOL
from tests.support.models.chatting import DONE, chat_with, chunk, says
from tests.support.models.messages_streams import claude_at, end, event, start, stop
from tests.support.models.messages_streams import says as says_message
from tests.support.models.upstream import Act, Upstream, answer, stream, upstream
from tests.support.nightly import at_night
from tests.support.server.serving import Served, serving

pytestmark = pytest.mark.anyio

ARGUMENTS = json.dumps({"command": "echo A"})
OURS = re.compile("c[0-9a-f]{8}")
PLAIN = re.compile(r"[a-zA-Z0-9_-]+")  # of Anthropic's clients
KIMI, MISTRAL = "functions.bash:0", "aB3dE5gH0"


@dataclass(frozen=True, slots=True)
class Wire:
    """The format of a model's server: `calls` is a reply with calls of these ids, `sent` the ids in a request, each
    with that of the result behind it."""

    provider: Callable[[Upstream], AbstractAsyncContextManager[Provider]]
    calls: Callable[[Sequence[str | None]], Act]
    text: Act
    sent: Callable[[dict[str, Any]], list[tuple[str, str]]]


def with_id(id: str | None, **fields: Any) -> dict[str, Any]:
    return fields | ({} if id is None else {"id": id})


def chat_call(ids: Sequence[str | None]) -> Act:
    function = {"name": TOOL, "arguments": ARGUMENTS}
    fragments = [with_id(id, index=at, type="function", function=function) for at, id in enumerate(ids)]
    return stream(*(chunk({"tool_calls": [one]}) for one in fragments), chunk(finish="tool_calls"), DONE)


def chat_sent(body: dict[str, Any]) -> list[tuple[str, str]]:
    calls = [call["id"] for message in body["messages"] for call in message.get("tool_calls", ())]
    results = [message["tool_call_id"] for message in body["messages"] if message["role"] == "tool"]
    return list(zip(calls, results, strict=True))


def message_call(ids: Sequence[str | None]) -> Act:
    parts = [start()]
    for at, id in enumerate(ids):
        parts.append(event("content_block_start", index=at, content_block=with_id(id, type="tool_use", name=TOOL)))
        written = {"type": "input_json_delta", "partial_json": ARGUMENTS}
        parts += [event("content_block_delta", index=at, delta=written), stop(at)]
    return stream(*parts, end("tool_use"))


def message_sent(body: dict[str, Any]) -> list[tuple[str, str]]:
    blocks = [block for message in body["messages"] for block in message["content"]]
    calls = [block["id"] for block in blocks if block["type"] == "tool_use"]
    results = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
    return list(zip(calls, results, strict=True))


def kimi_at(server: Upstream) -> AbstractAsyncContextManager[Provider]:
    """A server with the Messages API whose ids are not Anthropic's."""
    return claude_at(server, MODEL)


WIRES = {
    "chat completions": Wire(chat_with, chat_call, stream(says("Done."), chunk(finish="stop"), DONE), chat_sent),
    "messages": Wire(kimi_at, message_call, stream(start(), says_message("Done."), end("end_turn")), message_sent),
}
# What a server gives, and what it gets back; None: an id of ours.
ANSWERS: dict[str, tuple[Sequence[str | None], Sequence[str | None]]] = {
    "Kimi's": ([KIMI, "functions.bash:1"], [KIMI, "functions.bash:1"]),
    "OpenAI's": (["call_abc"], ["call_abc"]),
    "Anthropic's": (["toolu_01A09q90qw90lq917835lq9"], ["toolu_01A09q90qw90lq917835lq9"]),
    "Mistral's": ([MISTRAL], [MISTRAL]),
    "with characters of a URL": (["a/../b?c=1#d %2e|+é"], ["a/../b?c=1#d %2e|+é"]),
    "like a packed one": (["given_YWJj"], ["given_YWJj"]),
    "the same twice": (["same", "same"], ["same", None]),
    "the same number twice": ([KIMI, KIMI], [KIMI, "functions.bash:1"]),
    "missing": ([None], [None]),
    "empty": (["", ""], [None, None]),
    "too long": (["x" * 10_000, "call_1"], [None, "call_1"]),
    "with control characters": (["a\x00b", "a\nb"], [None, None]),
    "half a character": (["a\ud800"], [None]),
}


def check(sent: Sequence[tuple[str, str]], expected: Sequence[str | None]) -> None:
    """Each call has its result, and is the only one with its id; None: with an id of ours."""
    assert len(sent) == len(expected), sent
    assert all(call == result for call, result in sent) and len({*sent}) == len(sent), sent
    for (call, _), wanted in zip(sent, expected, strict=True):
        assert call == wanted if wanted else OURS.fullmatch(call), (call, wanted)


@asynccontextmanager
async def scripted(acts: list[Act]) -> AsyncGenerator[Upstream, None]:
    async def say(reader: Any, writer: Any) -> None:
        await acts.pop(0)(reader, writer)

    async with upstream(say, repeat=True, chats=True) as server:
        yield server


@asynccontextmanager
async def model_that(folder: Path, wire: str, acts: list[Act]) -> AsyncGenerator[tuple[Served, Upstream], None]:
    async with scripted(acts) as server, serving_model(folder, wire, server) as served:
        yield served, server


@asynccontextmanager
async def serving_model(folder: Path, wire: str, server: Upstream) -> AsyncGenerator[Served, None]:
    async with WIRES[wire].provider(server) as chat, serving(folder, chat, window=32_768) as served:
        yield served


async def asked(served: Served, lane: str, body: dict[str, Any]) -> Any:
    answered = await served.client.post(lane, json=body)
    assert answered.status_code == 200, answered.text
    return LANES[lane].read(answered.text)


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("row", ANSWERS)
async def test_the_agent_gives_a_server_its_ids_back_and_after_a_restart(tmp_path: Path, wire: str, row: str) -> None:
    given, expected = ANSWERS[row]
    made = WIRES[wire]
    acts = [made.calls(given), made.text, made.text]
    async with scripted(acts) as server:
        async with serving_model(tmp_path, wire, server) as served:
            events = await served.chat("Go.", tools=[TOOL], approval="auto")
        async with serving_model(tmp_path, wire, server) as served:
            await served.chat("And?", tools=[TOOL], session=events[0]["session"])
            shown = await served.client.get(f"/sessions/{events[0]['session']}")
    told = {one["call"] for one in events if "call" in one}
    assert len(told) == len(given) and all(map(OURS.fullmatch, told)), "clients see ids of ours"
    _, again, after_restart = server.asked
    for request in (again, after_restart):
        check(made.sent(request.json), expected)
    calls = [call for message in shown.json()["messages"] for call in message.get("calls", ())]
    assert {*calls[0]} == {"id", "name", "arguments", "dialect"}


EACH = [("chat completions", lane) for lane in LANES]
ALL = [(wire, lane) for wire in WIRES for lane in LANES]


@pytest.mark.parametrize(("wire", "lane"), at_night(ALL, [*EACH, ("messages", "/v1/messages")]))
@pytest.mark.parametrize("row", ANSWERS)
async def test_a_relay_gives_a_server_its_ids_back(tmp_path: Path, wire: str, row: str, lane: str) -> None:
    given, expected = ANSWERS[row]
    client = LANES[lane]
    async with model_that(tmp_path, wire, [WIRES[wire].calls(given), WIRES[wire].text]) as (served, server):
        seen = await asked(served, lane, client.asking("Go."))
        await asked(served, lane, client.answering(client.asking("Go."), seen))
    ids = [made.id for made in client.calls(seen)]
    assert len({*ids}) == len(given)
    if lane == "/v1/messages":
        assert all(map(PLAIN.fullmatch, ids))
    elif row in ("Kimi's", "OpenAI's", "Anthropic's", "Mistral's"):
        assert ids == [*given], "unchanged, where the client's format has room for it"
    check(WIRES[wire].sent(server.asked[1].json), expected)


@pytest.mark.parametrize("lane", LANES)
@pytest.mark.parametrize(("given", "second"), [(KIMI, "functions.bash:1"), ("call_x", None), ("a/b 0", "a/b 1")])
async def test_an_id_that_comes_each_round_is_used_once(
    tmp_path: Path, lane: str, given: str, second: str | None
) -> None:
    """Moonshot's own server refuses two calls with the same id, and its models give some twice."""
    client, wire = LANES[lane], WIRES["chat completions"]
    acts = [wire.calls([given]), wire.calls([given]), wire.text]
    async with model_that(tmp_path, "chat completions", acts) as (served, server):
        body = client.asking("Go.")
        for _ in range(2):
            body = client.answering(body, await asked(served, lane, body))
        await asked(served, lane, body)
    check(wire.sent(server.asked[2].json), [given, second])


async def test_the_agent_uses_an_id_once(tmp_path: Path) -> None:
    wire = WIRES["chat completions"]
    acts = [*[wire.calls([KIMI])] * 3, wire.text]
    async with model_that(tmp_path, "chat completions", acts) as (served, server):
        await served.chat("Go.", tools=[TOOL], approval="auto")
    check(wire.sent(server.asked[3].json), [KIMI, "functions.bash:1", "functions.bash:2"])


@dataclass(frozen=True, slots=True)
class Other:
    """Another server, and what it takes of calls that are not its own."""

    model: str
    wire: str
    takes: str


OTHERS = {
    "any": Other("qwen3", "chat completions", ".{1,64}"),
    "Mistral's": Other("devstral-small", "chat completions", "[a-zA-Z0-9]{9}"),
    "Anthropic's": Other("claude-sonnet", "messages", "[a-zA-Z0-9_-]{1,64}"),
}


@asynccontextmanager
async def two_servers(folder: Path, other: Other, first: Upstream, second: Upstream) -> AsyncGenerator[Served, None]:
    """Kimi's server, and another one that stands in for it."""
    formats = {"chat completions": "openai", "messages": "anthropic"}
    lines = [f'fallback = ["other/{other.model}"]', "summarise_at = 1"]
    for name, model, server, format in (
        ("kimi", "kimi-k2", first, "openai"),
        ("other", other.model, second, formats[other.wire]),
    ):
        lines += [f"[endpoints.{name}]", f'url = "{server.base_url}"', f'model = "{model}"', f'format = "{format}"']
        lines += ['tool_calls = "native"', "window = 32768"]
    (folder / "dragoman.toml").write_text("\n".join(lines))
    async with serving(folder, None) as served:
        yield served


GONE = answer('{"error": {"message": "There is no such model."}}', 404)


@pytest.mark.parametrize("row", OTHERS)
async def test_a_server_that_stands_in_gets_ids_of_ours_and_the_first_one_its_own_again(
    tmp_path: Path, row: str
) -> None:
    other, kimi = OTHERS[row], WIRES["chat completions"]
    wire = WIRES[other.wire]
    given = [KIMI, "x.y|" * 40]
    async with (
        scripted([kimi.calls(given), GONE, kimi.text]) as first,
        scripted([wire.calls([MISTRAL]), wire.text]) as second,
    ):
        async with two_servers(tmp_path, other, first, second) as served:
            events = await served.chat("Go.", tools=[TOOL], approval="auto")
        async with two_servers(tmp_path, other, first, second) as served:
            await served.chat("And?", tools=[TOOL], session=events[0]["session"])
    check(wire.sent(second.asked[0].json), [None, None])
    check(wire.sent(second.asked[1].json), [None, None, MISTRAL])
    check(kimi.sent(first.asked[2].json), [*given, None])


@pytest.mark.parametrize("row", OTHERS)
@pytest.mark.parametrize("lane", LANES)
async def test_a_client_that_asks_another_model_of_the_relay_has_ids_that_its_server_takes(
    tmp_path: Path, row: str, lane: str
) -> None:
    other, kimi, client = OTHERS[row], WIRES["chat completions"], LANES[lane]
    wire = WIRES[other.wire]
    async with scripted([kimi.calls([KIMI, "a b"])]) as first, scripted([wire.text]) as second:
        async with two_servers(tmp_path, other, first, second) as served:
            body = asking(client.asking("Go."), "kimi/kimi-k2")
            body = client.answering(body, await asked(served, lane, body))
            await asked(served, lane, asking(body, f"other/{other.model}"))
    sent = wire.sent(second.asked[0].json)
    assert all(call == result and re.fullmatch(other.takes, call) for call, result in sent) and len({*sent}) == 2


def asking(body: dict[str, Any], model: str) -> dict[str, Any]:
    """The body as a request for this model; AG-UI has a place of its own for that."""
    return body | ({"forwardedProps": {"model": model}} if "forwardedProps" in body else {"model": model})


@pytest.mark.parametrize("row", ANSWERS)
async def test_a_response_that_is_kept_has_the_ids_after_a_restart(tmp_path: Path, row: str) -> None:
    """Also those that the client has not got."""
    given, expected = ANSWERS[row]
    name, lane = "chat completions", "/v1/responses"
    client = LANES[lane]
    async with scripted([WIRES[name].calls(given), WIRES[name].text]) as server:
        async with serving_model(tmp_path, name, server) as served:
            body = client.asking("Go.") | {"store": True}
            response = await asked(served, lane, body)
        results = [item for item in client.answering(body, response)["input"] if "output" in item]
        async with serving_model(tmp_path, name, server) as served:
            await asked(served, lane, body | {"input": results, "previous_response_id": response["id"]})
    check(WIRES[name].sent(server.asked[1].json), expected)


async def test_a_client_of_the_agent_answers_a_call_under_our_id(tmp_path: Path) -> None:
    """Its server gets its own, whatever the client does: the session has it."""
    wire, lane = WIRES["chat completions"], "/v1/chat/completions"
    client = LANES[lane]
    for given in (KIMI, "x" * 200):
        async with model_that(tmp_path, "chat completions", [wire.calls([given]), wire.text]) as (served, server):
            body = asking(client.asking(f"Go {given}."), "dragoman/agent")
            await asked(served, lane, client.answering(body, await asked(served, lane, body)))
        check(wire.sent(server.asked[1].json), [given])


async def test_a_history_that_a_client_of_the_agent_has_changed_has_the_ids(tmp_path: Path) -> None:
    """It begins a new session, with the calls under our ids."""
    wire, lane = WIRES["chat completions"], "/v1/chat/completions"
    async with model_that(tmp_path, "chat completions", [wire.calls([KIMI]), wire.text, wire.text]) as (served, server):
        body = asking(LANES[lane].asking("Go."), "dragoman/agent")
        answered = LANES[lane].answering(body, await asked(served, lane, body))
        await asked(served, lane, answered)
        _, *others = answered["messages"]
        more = [{"role": "assistant", "content": "Done."}, {"role": "user", "content": "And?"}]
        changed = [{"role": "user", "content": "Go on."}, *others, *more]
        assert OURS.fullmatch(others[0]["tool_calls"][0]["id"])
        await asked(served, lane, answered | {"messages": changed})
        sessions = (await served.client.get("/sessions")).json()["sessions"]
    assert len(sessions) == 2
    check(wire.sent(server.asked[2].json), [KIMI])


async def test_a_branch_has_the_ids(tmp_path: Path) -> None:
    wire = WIRES["chat completions"]
    acts = [wire.calls([KIMI]), wire.text, wire.text]
    async with model_that(tmp_path, "chat completions", acts) as (served, server):
        events = await served.chat("Go.", tools=[TOOL], approval="auto")
        forked = await served.client.post(f"/sessions/{events[0]['session']}/fork", json={"after": events[0]["run"]})
        assert forked.status_code < 300, forked.text
        await served.chat("And?", tools=[TOOL], session=forked.json()["id"])
    check(wire.sent(server.asked[2].json), [KIMI])


@pytest.mark.parametrize("given", [".", "..", "a/b", "given_YWJj"])
def test_an_id_that_a_url_would_lose_is_packed(given: str) -> None:
    packed = id_for_client(given)
    assert PLAIN.fullmatch(packed) and packed != given and unpacked(packed) == given
