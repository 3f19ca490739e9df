"""What is made of each answer of the Messages API, whole and cut at every byte."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.messages import Sealed
from app.provider import Enclosed, Piece, ProviderFailed, Said, Stopped, Told, Used
from app.providers.answer import joined
from app.providers.anthropic.answer import MessagesAnswer
from app.providers.native import MAX_CALLS
from app.providers.seals import MOST
from parsing import BadCall, Call, CallDelta, CallOpened, Thought
from tests.messages_streams import delta, end, event, start, stop

FIXTURES = Path(__file__).parent.parent / "fixtures" / "providers" / "anthropic"
URL = "https://api.example.com/v1/messages"
ORIGIN = "claude at api.example.com, messages"
BEFORE = "0123456789abcdef"
SIGNED = [f"c2lnbmVkLT{end}" for end in ("E=", "I=", "M=", "Q=", "U=", "Y=")]


def fails(code: str, retryable: bool, status: int | None = None) -> tuple[str, bool, int | None]:
    return code, retryable, status


def called(raw: str, arguments: dict[str, Any], *, number: int = 0, name: str = "bash") -> list[Piece]:
    """A call that came in one piece: what is told of it at once, and what at the end."""
    return [CallOpened(number, name), CallDelta(number, raw), Call(number, name, arguments, "native")]


def sealed(*content: dict[str, Any]) -> Enclosed:
    return Enclosed(Sealed(ORIGIN, {"before": BEFORE, "content": list(content)}))


def thought(text: str, signature: str) -> dict[str, Any]:
    return {"type": "thinking", "thinking": text, "signature": signature}


def text(characters: int) -> dict[str, Any]:
    return {"type": "text", "characters": characters}


def used_id(id: str) -> dict[str, Any]:
    return {"type": "tool_use", "id": id}


LS = called('{"command": "ls"}', {"command": "ls"})
CALLS, STOP = Stopped("tool_calls"), Stopped("stop")
LONG = json.loads((FIXTURES / "thinking.sse").read_text("utf-8").split("signature_delta")[0].splitlines()[1][6:])
RM = '{"command": "rm -rf /tmp/bui'

EXPECTED: dict[str, Sequence[Piece | tuple[str, bool, int | None]]] = {
    "text.sse": [Said("The tide turns at nine."), Used(25, 9, 0, 0), STOP],
    "cached.sse": [Said("As before."), Used(2370, 5, 2048, 310), STOP],
    "tool_use.sse": [
        Said("I'll look around."),
        *(CallOpened(0, "bash"), CallDelta(0, '{"comm'), CallDelta(0, 'and": "ls'), CallDelta(0, ' -l"}')),
        *(Call(0, "bash", {"command": "ls -l"}, "native"), Used(472, 61), CALLS),
    ],
    "parallel_tools.sse": [
        *LS[:2],
        *(CallOpened(1, "read_file"), CallDelta(1, '{"path": '), CallDelta(1, '"a"}')),
        *(LS[2], Call(1, "read_file", {"path": "a"}, "native")),
        *(CallOpened(2, "clock"), Call(2, "clock", {}, "native"), Used(512, 90), CALLS),
    ],
    "thinking_and_tool.sse": [
        *(Thought("I should look first."), Said("Let me look.")),
        *(CallOpened(0, "bash"), CallDelta(0, '{"command":'), CallDelta(0, ' "ls"}'), LS[2]),
        sealed(thought("I should look first.", SIGNED[0]), text(12), used_id("toolu_01Dd")),
        *(Used(480, 88), CALLS),
    ],
    "thinking_omitted.sse": [*LS, sealed(thought("", SIGNED[1]), used_id("toolu_01Ee")), Used(480, 70), CALLS],
    "thinking_redacted.sse": [
        *(Thought("First this."), *LS),
        sealed(
            thought("First this.", SIGNED[2]),
            {"type": "redacted_thinking", "data": "dGhvdWdodHMgdGhhdCBub2JvZHkgbWF5IHJlYWQ="},
            used_id("toolu_01Ff"),
        ),
        *(Used(480, 90), CALLS),
    ],
    "thinking_between.sse": [
        *(Thought("One."), Said("\n\nSo far so good."), Thought("Two."), *LS),
        sealed(thought("One.", SIGNED[3]), text(2), text(15), thought("Two.", SIGNED[4]), used_id("toolu_01Gg")),
        *(Used(480, 99), CALLS),
    ],
    "cut_by_max_tokens.sse": [Said("A long story"), Used(30, 3), Stopped("length")],
    "call_cut_by_max_tokens.sse": [
        *(CallOpened(0, "bash"), CallDelta(0, RM)),
        BadCall(
            0,
            RM,
            f"The arguments of bash were cut off after {len(RM)} characters, so nothing was run. "
            "Call bash again with one whole JSON object; if they are long, in smaller steps.",
        ),
        *(Used(30, 20), Stopped("length")),
    ],
    "window_full.sse": [Said("And then"), Used(199990, 10), Stopped("length")],
    "refusal.sse": [
        *(Said("I"), Used(60, 2)),
        Told("refusal", "The model declined to answer: cyber: The request could enable harm."),
        Stopped("content_filter"),
    ],
    "pause_turn.sse": [Said("One moment."), Used(60, 4), Stopped("pause_turn")],
    "stop_sequence.sse": [Said("One, two,"), Used(60, 5), STOP],
    "server_tool.sse": [Said("I search. Nine."), Used(60, 40), STOP],
    "unknown_events.sse": [Said("Hello"), Used(25, 2), STOP],
    "error_overloaded.sse": [Said("Hel"), fails("model_down", True, 529)],
    "error_first.sse": [fails("model_failed", True, 500)],
    "error.json": [fails("model_busy", True, 429)],
    "no_message_stop.sse": [Said("Hello"), Used(25, 2), STOP],
    "no_stop_reason.sse": [Said("Hello"), fails("model_cut", True)],
    "gateway_zero_usage.sse": [Said("Hello"), Used(471, 80), STOP],
    "gateway_whole_input.sse": [*LS, Used(10, 9), CALLS],
    "not_streamed.json": [
        *(Thought("Easy."), Said("I look."), *LS),
        sealed(thought("Easy.", SIGNED[5]), text(7), used_id("toolu_01Ii")),
        *(Used(7, 2), CALLS),
    ],
}


def outcome(parts: Sequence[bytes]) -> list[Any]:
    """The pieces, neighbouring text joined, and what went wrong in the end."""
    answer, pieces = MessagesAnswer(URL, ORIGIN, BEFORE), list[Any]()
    try:
        for part in parts:
            pieces.extend(answer.feed(part))
            if answer.done:
                break
        pieces.extend(answer.close())
    except ProviderFailed as failure:
        return [*joined(pieces), fails(failure.code, failure.retryable, failure.status)]
    return list(joined(pieces))


def bodies() -> list[str]:
    return sorted(path.name for path in FIXTURES.iterdir() if path.suffix in (".sse", ".json"))


def test_every_stream_is_expected_and_told_of() -> None:
    assert bodies() == sorted([*EXPECTED, "thinking.sse"])
    told = (FIXTURES / "README.md").read_text("utf-8")
    assert [name for name in bodies() if f"| `{name}` |" not in told] == []


@pytest.mark.parametrize("name", EXPECTED)
def test_what_is_made_of_it(name: str) -> None:
    assert outcome([(FIXTURES / name).read_bytes()]) == list(EXPECTED[name])


def test_thoughts_without_calls_are_sealed_as_well() -> None:
    pieces = outcome([(FIXTURES / "thinking.sse").read_bytes()])
    assert pieces[:2] == [Thought("A riddle. The answer is a map."), Said("A map.")]
    (content,) = [piece.sealed.fields["content"] for piece in pieces if isinstance(piece, Enclosed)]
    assert [block["type"] for block in content] == ["thinking", "text"] and len(content[0]["signature"]) > 100


@pytest.mark.parametrize("name", bodies())
def test_a_byte_at_a_time_makes_no_difference(name: str) -> None:
    body = (FIXTURES / name).read_bytes()
    assert flat(outcome([bytes([byte]) for byte in body])) == flat(outcome([body]))


def flat(pieces: Sequence[Any]) -> list[Any]:
    """Deltas of a call as one: how they were cut is the network's affair."""
    told: dict[int, str] = {}
    for piece in pieces:
        if isinstance(piece, CallDelta):
            told[piece.index] = told.get(piece.index, "") + piece.text
    return [*(piece for piece in pieces if not isinstance(piece, CallDelta)), told]


@pytest.mark.parametrize("name", bodies())
def test_cut_at_every_byte_it_has_one_outcome_and_no_half_call(name: str) -> None:
    body = (FIXTURES / name).read_bytes()
    whole = outcome([body])
    calls = [piece for piece in whole if isinstance(piece, Call)]
    for size in range(len(body)):
        pieces = outcome([body[:size]])
        ends = [piece for piece in pieces if isinstance(piece, Stopped | tuple)]
        assert ends == pieces[-1:]
        found = [piece for piece in pieces if isinstance(piece, Call)]
        assert not found or found == calls
        assert isinstance(ends[0], Stopped) or not [piece for piece in pieces if isinstance(piece, Enclosed | Call)]


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_any_slicing_gives_the_same(data: st.DataObject) -> None:
    body = (FIXTURES / data.draw(st.sampled_from(bodies()))).read_bytes()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(body)), max_size=12)))
    parts = [body[begin:stop] for begin, stop in zip([0, *cuts], [*cuts, len(body)], strict=True)]
    assert flat(outcome(parts)) == flat(outcome([body]))


ODD: list[tuple[str, str, list[Any]]] = [
    ("nothing", "", [fails("model_cut", True)]),
    ("blank lines only", "\n\n\n", [fails("model_cut", True)]),
    ("a page", "<html>Login</html>", [fails("model_garbled", False)]),
    ("another JSON", '{"choices":[]}', [fails("model_garbled", False)]),
    ("half a JSON", '{"type":"mess', [fails("model_garbled", False)]),
    ("words", "Hello", [fails("model_garbled", False)]),
    ("an event that is no JSON", "event: message_start\ndata: {oops\n\n", [fails("model_garbled", True)]),
    ("an event that is a list", "data: []\n\n", [fails("model_garbled", True)]),
    ("a mark and blank lines first", "\ufeff\n\n" + start() + end("end_turn"), [Used(3, 2), STOP]),
    (
        "another format",
        'data: {"choices":[{"delta":{"content":"Hi"}}]}\n\ndata: [DONE]\n\n',
        [fails("model_garbled", True)],
    ),
    ("an error without a type", 'data: {"error":{"message":"no"}}\n\n', [fails("model_failed", True, 500)]),
    ("an error in words", "event: error\ndata: upstream went away\n\n", [fails("model_failed", True, 500)]),
    ("an error after the reason", start() + end("end_turn", whole=False) + event("error"), [Used(3, 2), STOP]),
    ("a reason that is not known", start() + end("tired"), [Used(3, 2), Stopped("tired")]),
    ("a delta without its block", start() + delta(0, "text", "Hi") + end("end_turn"), [Said("Hi"), Used(3, 2), STOP]),
    (
        "arguments without their block",
        start()
        + event("content_block_delta", index=0, delta={"type": "input_json_delta", "partial_json": "{}"})
        + end("end_turn"),
        [Used(3, 2), STOP],
    ),
    (
        "an index that is used twice",
        start()
        + 2 * (event("content_block_start", index=0, content_block={"type": "tool_use", "name": "a"}) + stop(0))
        + end("tool_use"),
        [
            CallOpened(0, "a"),
            Call(0, "a", {}, "native"),
            CallOpened(1, "a"),
            Call(1, "a", {}, "native"),
            Used(3, 2),
            CALLS,
        ],
    ),
    (
        "a call without a name",
        start()
        + event("content_block_start", index=0, content_block={"type": "tool_use", "id": "t"})
        + end("tool_use"),
        [BadCall(0, "", "A tool call came without a name. Call again, with the tool's name."), Used(3, 2), CALLS],
    ),
    (
        "blocks that are none",
        start() + event("content_block_start", index=0, content_block=7) + end("end_turn"),
        [Used(3, 2), STOP],
    ),
    ("counts that cannot be", start(input=-1) + end("end_turn", out="many"), [Used(0, 1), STOP]),
]


@pytest.mark.parametrize(("body", "expected"), [row[1:] for row in ODD], ids=[row[0] for row in ODD])
def test_odd_answers(body: str, expected: list[Any]) -> None:
    assert outcome([body.encode()]) == expected


def test_too_many_calls_and_too_long_events_are_refused() -> None:
    many = "".join(
        event("content_block_start", index=n, content_block={"type": "tool_use", "name": "a"})
        for n in range(MAX_CALLS + 1)
    )
    assert outcome([(start() + many).encode()]) == [fails("model_garbled", True)]
    block = b"x" * (1 << 20)
    for beginning in (b"data: ", b"{"):
        answer = MessagesAnswer(URL)
        with pytest.raises(ProviderFailed, match="longer than"):
            for part in [beginning, *[block] * 20]:
                list(answer.feed(part))


def test_thoughts_that_are_too_long_are_told_but_not_kept() -> None:
    long = "x" * (MOST // 2)
    stream = start() + event("content_block_start", index=0, content_block={"type": "thinking", "thinking": ""})
    stream += 3 * delta(0, "thinking", long) + stop(0) + delta(1, "text", "Hi") + end("end_turn")
    assert outcome([stream.encode()]) == [Thought(3 * long), Said("Hi"), Used(3, 2), STOP]


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=5), inner, max_size=2),
    max_leaves=4,
)
KINDS = st.sampled_from(
    [
        "message_start",
        "content_block_start",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "ping",
        "error",
    ]
)
BLOCKS = st.fixed_dictionaries(
    {"type": st.sampled_from(["text", "thinking", "redacted_thinking", "tool_use", "text_delta", "input_json_delta"])},
    optional=dict.fromkeys(("text", "thinking", "signature", "data", "id", "name", "input", "partial_json"), JUNK),
)
EVENTS = st.fixed_dictionaries(
    {"type": KINDS},
    optional={
        "index": st.integers(-1, 2) | JUNK,
        "content_block": BLOCKS | JUNK,
        "delta": BLOCKS
        | JUNK
        | st.fixed_dictionaries({"stop_reason": st.sampled_from(["end_turn", "refusal"]) | JUNK}),
        "message": JUNK,
        "usage": JUNK,
        "error": JUNK,
    },
)


@given(st.lists(EVENTS, max_size=8))
@settings(max_examples=200, deadline=None)
def test_whatever_the_events_hold_there_is_one_outcome(events: list[dict[str, Any]]) -> None:
    body = "".join(f"data: {json.dumps(one)}\n\n" for one in events)
    pieces = outcome([body.encode()])
    assert [piece for piece in pieces if isinstance(piece, Stopped | tuple)] == pieces[-1:]
    with suppress(ValueError):
        json.dumps([piece.sealed.fields for piece in pieces if isinstance(piece, Enclosed)], allow_nan=False)
