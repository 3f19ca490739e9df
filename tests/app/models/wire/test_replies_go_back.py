"""A model's reply stands in the requests after it as it came: recorded streams of all families, and any arguments."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from app.core.messages import AskedCall, Message, OpaqueMetadata, dump, load
from app.core.provider import REPLY_CHANGED, ModelRequest, ProviderNotice
from app.models.capabilities.abilities import AbilityOverrides
from app.models.wire.anthropic.answer import MessagesAnswer
from app.models.wire.anthropic.history import Wire
from app.models.wire.native_calls import as_written
from app.models.wire.opaque_metadata import THOUGHT_IN
from app.models.wire.openai.answer import ChatAnswer
from app.models.wire.openai.history import arguments_text, wire_messages
from app.models.wire.openai.reasoning_replay import ReplayPolicy
from app.models.wire.openai.verbatim import verbatim_messages
from app.redaction.redactor import Redactor
from app.transcript.reply import Reply
from tests.support.lanes.native_clients import LANES, TOOL
from tests.support.models.chatting import BASH, DONE, chat_with, chunk, pieces_of, refusal, says
from tests.support.models.messages_streams import claude_at, end, start
from tests.support.models.recorded_replies import (
    KINDS,
    Said,
    blocks_in,
    families,
    messages_reply,
    messages_text,
    reply,
    said_in,
    sent_back,
    text_block,
    tool,
)
from tests.support.models.upstream import Act, Upstream, answer, stream, upstream
from tests.support.server.serving import Served, events_of, serving

pytestmark = pytest.mark.anyio

URL = "http://model.example/v1/chat/completions"
MODELS = {"deepseek": "deepseek-v4", "moonshot": "kimi-k2.5", "mistral": "magistral-medium"}
ALWAYS = ("deepseek", "moonshot", "openrouter")  # want their thoughts back in later turns, too
NATIVE = AbilityOverrides(tool_calls="native")
SECRET = "sk-9f8e7d6c5b4a-secret"
THANKS = b"".join(one.encode() for one in (says("You are welcome."), chunk(finish="stop"), DONE))
ANOTHER = b"".join(one.encode() for one in (says("Another."), chunk(finish="stop"), DONE))
CLAUDE_THANKS, CLAUDE_ANOTHER = messages_text("You are welcome."), messages_text("Another.")


@asynccontextmanager
async def model_of(*streams: bytes | Act) -> AsyncGenerator[Upstream, None]:
    """A server that says these replies, and knows nothing else."""
    left, servers = list(streams), list[Upstream]()

    async def say(reader: Any, writer: Any) -> None:
        chats = servers[0].asked[-1].path.partition("?")[0].endswith(("/chat/completions", "/messages"))
        act = left.pop(0) if chats else answer("{}", 404)
        await (stream(act) if isinstance(act, bytes) else act)(reader, writer)

    async with upstream(say, repeat=True) as opened:
        servers.append(opened)
        yield opened


async def turn(served: Served, session: str | None = None) -> tuple[str, str]:
    """The session and the run of one turn, in which nothing is said about changes."""
    events = await served.chat("Go on.", approval="deny", **({"session": session} if session else {}))
    assert events[-1]["type"] == "run.finished", events[-1]
    assert not [one for one in events if one["type"] == "notice" and one["code"] in (REPLY_CHANGED, "repaired")]
    return events[0]["session"], events[0]["run"]


def expected(family: str, streams: Sequence[bytes], turns: Sequence[int]) -> list[Said]:
    """The replies as they have to stand in a request; `turns` are those of the turn under way."""
    found = [said_in(one) for one in streams]
    for at, said in enumerate(found):
        if not (said.calls and (at in turns or family in ALWAYS)):
            found[at] = replace(said, thought="", place="", details=said.details)
        if said.details:  # the thought is in them
            found[at] = replace(found[at], thought="", place="")
        if family == "moonshot" and said.calls and not said.thought:
            found[at] = replace(found[at], thought=" ", place="reasoning_content")
    return found


@pytest.mark.parametrize("family", families())
async def test_each_reply_of_chat_completions_goes_back_as_it_came(tmp_path: Path, family: str) -> None:
    model = MODELS.get(family, "some-model")
    kinds = [kind for kind in KINDS if reply(family, kind)]
    streams = list[bytes]()  # one turn for each kind, which ends with a text
    for kind in kinds:
        streams += [reply(family, kind)] if kind == "plain" else [reply(family, kind), THANKS]
    turns = [[2 * at] for at in range(len(kinds))]

    def check(bodies: Sequence[Any], how: str) -> None:
        """Each request has the replies before it, those of other models aside."""
        for body in bodies:
            sent = [one for one in sent_back(body["messages"]) if one.text != "Another."]
            under_way = [at for at in turns[-1 if how != "same" else len(sent) // 2] if how == "same"]
            wanted = expected(family, streams[: len(sent)], under_way)
            if not any(one.thought for one in map(said_in, streams[: len(sent)])):
                wanted = [replace(one, thought="", place="") for one in wanted]  # Kimi: it does not think at all
            assert sent == wanted, how

    async with model_of(*streams, THANKS, THANKS) as server, model_of(CLAUDE_ANOTHER) as other:
        async with (
            chat_with(server, model=model, overrides=NATIVE) as chat,
            serving(tmp_path, chat, window=32_768) as served,
        ):
            session, run = await turn(served)
            for _ in kinds[1:]:
                session, run = await turn(served, session)
            check([one.json for one in server.chats], "same")
            fork = await served.client.post(f"/sessions/{session}/fork", json={"after": run})
            await turn(served, fork.json()["id"])
            check([server.chats[-1].json], "fork")
        async with claude_at(other) as claude, serving(tmp_path, claude, window=32_768) as served:
            await turn(served, session)
        async with (
            chat_with(server, model=model, overrides=NATIVE) as chat,
            serving(tmp_path, chat, window=32_768) as served,
        ):
            await turn(served, session)
            check([server.chats[-1].json], "restart, and another model in between")
    taken = [block for one in other.chats[-1].json["messages"] for block in one["content"]]
    assert not any(block["type"] == "thinking" for block in taken)


async def test_each_reply_of_the_messages_api_goes_back_as_it_came(tmp_path: Path) -> None:
    streams = [one for kind in KINDS for one in (messages_reply(kind), *([CLAUDE_THANKS] if kind != "plain" else []))]

    def check(bodies: Sequence[Any]) -> None:
        for body in bodies:
            for message in body["messages"]:
                for block in message["content"]:
                    block.pop("cache_control", None)
            sent = [one["content"] for one in body["messages"] if one["role"] == "assistant"]
            sent = [one for one in sent if one != [{"type": "text", "text": "Another."}]]
            wanted = list(map(blocks_in, streams[: len(sent)]))
            assert json.dumps(sent) == json.dumps(wanted)

    async with model_of(*streams, CLAUDE_THANKS, CLAUDE_THANKS) as server, model_of(ANOTHER) as other:
        async with claude_at(server) as claude, serving(tmp_path, claude, window=32_768) as served:
            session, run = await turn(served)
            for _ in KINDS[1:]:
                session, run = await turn(served, session)
            check([one.json for one in server.chats])
            fork = await served.client.post(f"/sessions/{session}/fork", json={"after": run})
            await turn(served, fork.json()["id"])
            check([server.chats[-1].json])
        async with chat_with(other, overrides=NATIVE) as chat, serving(tmp_path, chat, window=32_768) as served:
            await turn(served, session)
        async with claude_at(server) as claude, serving(tmp_path, claude, window=32_768) as served:
            await turn(served, session)
            check([server.chats[-1].json])
    texts = [one.text for one in sent_back(other.chats[-1].json["messages"])]
    assert texts == ["", "You are welcome.", "Let me look.", "You are welcome.", "One. Two.Three.", "You are welcome.",
                     "The tide turns at nine."]  # fmt: skip


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@st.composite
def written_arguments(draw: st.DrawFn) -> str:
    """The JSON of an object as models write it: with any spaces, line ends and escapes."""
    options: dict[str, Any] = {
        "separators": draw(st.sampled_from([(",", ":"), (", ", ": "), (" , ", " : ")])),
        "ensure_ascii": draw(st.booleans()),
        "indent": draw(st.sampled_from([None, 2])),
    }
    text = json.dumps(draw(st.dictionaries(st.text(max_size=9), values, max_size=4)), **options)
    return draw(st.sampled_from(["", " ", "\n"])) + text + draw(st.sampled_from(["", "\n"]))


def kept(reader: ChatAnswer | MessagesAnswer, body: str, size: int) -> Message:
    """What a reply becomes, after the store."""
    ids = (f"c{number}" for number in range(1000))
    reply = Reply({}, fences=lambda: True, new_id=lambda: next(ids))
    data = body.encode()
    for at in range(0, len(data), size):
        for piece in reader.feed(data[at : at + size]):
            tuple(reply.add(piece))
    for piece in reader.close():
        tuple(reply.add(piece))
    tuple(reply.end())
    return load(dump(reply.message()))


@settings(max_examples=80, deadline=None)
@given(st.lists(st.tuples(st.text(max_size=9), written_arguments()), min_size=1, max_size=4), st.integers(1, 300))
def test_text_and_arguments_go_back_however_they_are_written_and_cut(said: list[tuple[str, str]], size: int) -> None:
    chunks, texts = list[str](), list[str]()
    for index, (text, arguments) in enumerate(said):
        half = len(arguments) // 2
        function = {"name": "look", "arguments": arguments[:half]}
        chunks += [
            chunk({"content": text}),
            chunk({"tool_calls": [{"index": index, "id": f"x{index}", "function": function}]}),
        ]
        chunks.append(chunk({"tool_calls": [{"index": index, "function": {"arguments": arguments[half:]}}]}))
        texts.append(text)
    message = kept(ChatAnswer(URL, "o"), "".join([*chunks, chunk(finish="tool_calls"), DONE]), size)
    (sent,) = sent_back(wire_messages([message], native=True, replay=ReplayPolicy("o")))
    whole = "".join(texts)
    assert (sent.text if whole else "") == whole
    assert sent.calls == [[f"x{index}", "look", arguments] for index, (_, arguments) in enumerate(said)]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.one_of(st.text(min_size=1, max_size=9), written_arguments().map(lambda one: (one,))), max_size=6))
def test_blocks_go_back_in_their_places(said: list[str | tuple[str]]) -> None:
    parts = list[str]()
    for index, one in enumerate(said):
        parts += text_block(index, one) if isinstance(one, str) else tool(index, f"t{index}", one[0])
    body = "".join([start(), *parts, end("tool_use")])
    message = kept(MessagesAnswer(URL, "o", "b"), body, 50)
    sent = [one for one in Wire(True, origin="another").write([message]).messages if one["role"] == "assistant"]
    wanted = blocks_in(body.encode())
    assert [block | {"id": ""} for one in sent for block in one["content"]] == [one | {"id": ""} for one in wanted]
    assert len(message.calls) == sum(not isinstance(one, str) for one in said)


LS = AskedCall("c1", "bash", {"command": "ls"}, "native", written='{"command":"ls"}')


@pytest.mark.parametrize(
    ("call", "sent"),
    [
        (LS, '{"command":"ls"}'),
        (replace(LS, arguments={"command": "pwd"}), '{"command": "pwd"}'),  # edited, in a fork perhaps
        (replace(LS, written='{"command":"ls"'), '{"command": "ls"}'),
        (replace(LS, written='{"command":"ls"} and more'), '{"command": "ls"}'),
        (replace(LS, written="[" * 10**5), '{"command": "ls"}'),
        (replace(LS, written=""), '{"command": "ls"}'),
        (
            Redactor(["topsecret99"]).redact_value(replace(LS, arguments={"command": "topsecret99"})),
            '{"command": "[redacted]"}',
        ),
    ],
)
def test_arguments_that_were_changed_are_encoded(call: AskedCall, sent: str) -> None:
    assert arguments_text(call) == sent


@pytest.mark.parametrize(
    "written",
    ['{"a": "\\ud83d"}', '{"a": "\ud83d"}', '{"a": 1, "a": 2}', '{"a":1', "", "null", "[" * 10**5, '{"a": 1}{"a": 1}'],
)
def test_what_servers_refuse_or_hides_something_is_not_kept(written: str) -> None:
    try:
        arguments = json.loads(written) or {}
    except (ValueError, RecursionError):
        arguments = {"a": 1}
    assert as_written(written, arguments) == (None if arguments else "")
    assert as_written('{"a":"\\ud83d\\ude00"}', {"a": "\U0001f600"})  # two halves are whole


def test_a_secret_that_is_escaped_in_arguments_is_not_stored() -> None:
    written = json.dumps({"command": SECRET}).replace("9", "\\u0039")
    call = replace(LS, arguments={"command": SECRET}, written=written)
    stored = dump(Redactor([SECRET]).redact_value(Message("assistant", "", (call,))))
    assert "u0039" not in stored and "[redacted]" in stored


async def test_what_cannot_go_back_as_it_was_is_said_once_before_it_goes(tmp_path: Path) -> None:
    written = f'{{"command": "ls", "command": "{SECRET}"}}'
    call = {"index": 0, "id": "x1", "function": {"name": "bash", "arguments": written}}
    calls = [
        f"{says(SECRET)}{chunk({'tool_calls': [call | {'id': f'x{at}'}]})}{chunk(finish='tool_calls')}{DONE}".encode()
        for at in range(2)
    ]
    async with (
        model_of(*calls, THANKS) as server,
        chat_with(server, overrides=NATIVE) as chat,
        serving(tmp_path, chat, window=32_768) as served,
    ):
        served.services.redactor.add(SECRET)
        events = await served.chat("Go on.", approval="deny")
    (notice,) = [one for one in events if one["type"] == "notice" and one["code"] == REPLY_CHANGED]
    assert "[redacted]" in notice["message"] and "encoded anew" in notice["message"]
    assert [one["type"] for one in events[: events.index(notice)]].count("round.started") == 2
    bodies = [json.dumps(one.json) for one in server.chats]
    assert not any(SECRET in body for body in bodies) and "[redacted]" in bodies[-1]


async def test_a_server_that_refuses_reasoning_does_not_get_it_again() -> None:
    sealed = said_message("reasoning_content")
    refused = refusal("property 'reasoning_content' is unsupported")
    async with upstream(refused, *[stream(THANKS)] * 2) as server, chat_with(server, overrides=NATIVE) as chat:
        request = ModelRequest([Message("user", "Go."), sealed, Message("tool", "a", call="c1", name="bash")], [BASH])
        first, second = [await pieces_of(chat, request) for _ in range(2)]
    assert [isinstance(one, ProviderNotice) for one in first].count(True) == 1
    assert not any(isinstance(one, ProviderNotice) for one in second)
    assert ["reasoning_content" in one.body.decode() for one in server.chats] == [True, False, False]


async def test_a_server_that_then_misses_it_gets_it_all() -> None:
    words = "The reasoning_content must be passed back."
    async with (
        upstream(*[refusal(words)] * 2, stream(THANKS)) as server,
        chat_with(server, overrides=NATIVE) as chat,
    ):
        history = [
            Message("user", "Go."),
            said_message("reasoning_content"),
            Message("tool", "a", call="c1", name="bash"),
        ]
        await pieces_of(chat, ModelRequest(history, [BASH]))
    assert server.chats[-1].json["messages"][1]["reasoning_content"] == "Hm."


def said_message(place: str) -> Message:
    """A reply of the test's own server with a thought and a call."""
    return Message(
        "assistant", "", (LS,), reasoning="Hm.", sealed=OpaqueMetadata("m at 127.0.0.1", {THOUGHT_IN: place})
    )


@pytest.mark.parametrize(
    ("properties", "sent"),
    [
        ({}, [False, True]),
        ({"chat_template": "{{ message.reasoning_content }}"}, [False, True]),
        ({"chat_template": "{{ message.content }}"}, [False, False]),
        ({"chat_template": "", "chat_template_caps": {"supports_preserve_reasoning": True}}, [True, True]),
    ],
)
async def test_the_template_says_how_much_reasoning_goes_back(properties: dict[str, Any], sent: list[bool]) -> None:
    def by_path(path: str) -> Act:
        if path.startswith("/props"):
            return answer(json.dumps({"default_generation_settings": {"n_ctx": 4096}, **properties}))
        return stream(THANKS) if path.endswith("/chat/completions") else answer("{}", 404)

    servers = list[Upstream]()

    async def say(reader: Any, writer: Any) -> None:
        await by_path(servers[0].asked[-1].path)(reader, writer)

    result = Message("tool", "a", call="c1", name="bash")
    other = replace(said_message("reasoning"), calls=(replace(LS, id="c2"),))
    history = [Message("user", "Go."), said_message("reasoning"), result, Message("assistant", "Done.")]
    history += [Message("user", "Go."), other, replace(result, call="c2")]
    async with upstream(say, repeat=True) as server, chat_with(server, overrides=NATIVE) as chat:
        servers.append(server)
        await chat.window()
        await pieces_of(chat, ModelRequest(history, [BASH]))
    messages = [one for one in server.chats[-1].json["messages"] if "tool_calls" in one]
    assert ["reasoning" in one for one in messages] == sent


def test_gpt_oss_gets_its_own_thoughts_and_not_those_of_another() -> None:
    history = [Message("user", "Go."), said_message("reasoning"), Message("tool", "a", call="c1", name="bash")]
    for origin, sent in (("m at 127.0.0.1", "Hm."), ("n at 127.0.0.1", "")):
        (one,) = sent_back(wire_messages(history, native=True, replay=ReplayPolicy(origin)))
        assert one.thought == sent


@pytest.mark.parametrize("lane", ["/v1/chat/completions", "/v1/responses", "/ag-ui"])
async def test_a_relay_hands_arguments_on_and_back_as_they_were_written(tmp_path: Path, lane: str) -> None:
    client, written = LANES[lane], '{"command":"echo \\u00e4", "n": 1.50 }'
    function = {"name": TOOL, "arguments": written}
    call = {"index": 0, "id": "call_1", "type": "function", "function": function}
    made = [chunk({"reasoning": "Hm."}), chunk({"tool_calls": [call]}), chunk(finish="tool_calls"), DONE]
    async with (
        model_of("".join(made).encode(), THANKS) as server,
        chat_with(server, overrides=NATIVE) as chat,
        serving(tmp_path, chat, window=32_768) as served,
    ):
        body = client.asking("Go.")
        seen = client.read((await served.client.post(lane, json=body)).text)
        await served.client.post(lane, json=client.answering(body, seen))
    (sent,) = sent_back(server.chats[1].json["messages"])
    assert [arguments for _, _, arguments in sent.calls] == [written if lane != "/ag-ui" else sent.calls[0][2]]
    assert json.loads(sent.calls[0][2]) == json.loads(written)


def test_a_client_of_a_local_server_gives_its_reasoning_back_in_the_turn() -> None:
    history = [Message("user", "Go."), replace(said_message(""), sealed=None)]
    history.append(Message("tool", "a", call="c1", name="bash"))
    replay = ReplayPolicy("o", relayed=True)
    for more, sent in (([], True), ([Message("assistant", "Done."), Message("user", "And?")], False)):
        messages = verbatim_messages([], [*history, *more], native=True, replay=replay)
        (wired,) = [one for one in messages if "tool_calls" in one]
        assert (wired.get("reasoning_content") == wired.get("reasoning") == "Hm.") is sent


async def test_a_relay_of_the_messages_api_keeps_each_block_in_its_place(tmp_path: Path) -> None:
    tools = [{"name": "bash", "input_schema": {"type": "object"}}]
    body: dict[str, Any] = {"model": "claude-m", "max_tokens": 99, "tools": tools}
    body["messages"] = [{"role": "user", "content": "Go."}]
    async with (
        model_of(CLAUDE_THANKS) as server,
        claude_at(server) as claude,
        serving(tmp_path, claude, window=32_768) as served,
    ):
        blocks = [
            *({"type": "text", "text": "One. "}, {"type": "tool_use", "id": "t1", "name": "bash", "input": {"a": 1.5}}),
            *({"type": "text", "text": "Two."}, {"type": "tool_use", "id": "t2", "name": "bash", "input": {}}),
            {"type": "text", "text": "Three."},
        ]
        results = [{"type": "tool_result", "tool_use_id": id, "content": "x"} for id in ("t1", "t2")]
        body["messages"] += [{"role": "assistant", "content": blocks}, {"role": "user", "content": results}]
        answered = await served.client.post("/v1/messages", json=body)
        assert answered.status_code == 200, answered.text
    assert server.chats[-1].json["messages"][1] == {"role": "assistant", "content": blocks}


@pytest.mark.parametrize("family", ["vllm", "llama_cpp", "ollama", "openrouter"])
async def test_a_fork_inside_a_turn_has_the_reply_with_its_thoughts(tmp_path: Path, family: str) -> None:
    said = reply(family, "reasoning")
    async with model_of(said, THANKS, THANKS) as server:
        async with chat_with(server, overrides=NATIVE) as chat, serving(tmp_path, chat, window=32_768) as served:
            events = await served.chat("Go on.", approval="deny")
        second = [one["seq"] for one in events if one["type"] == "round.started"][1]
        async with chat_with(server, overrides=NATIVE) as chat, serving(tmp_path, chat, window=32_768) as served:
            path = f"/runs/{events[0]['run']}/fork"
            async with served.client.stream("POST", path, json={"at": second - 1}) as response:
                assert response.status_code == 200, await response.aread()
                async with aclosing(events_of(response)) as forked:
                    assert [one async for one in forked][-1]["type"] == "run.finished"
    first, forks = (one.json["messages"] for one in server.chats[1:])
    assert sent_back(forks) == sent_back(first) == expected(family, [said], [0])
