"""What is made of each answer of the Messages API, whole and cut at every byte."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.core.messages import OpaqueMetadata
from app.core.provider import CallId, Finished, MetadataChunk, Piece, ProviderNotice, TextChunk, TokenUsage
from parsing import BadCall, Call, CallDelta, CallOpened, Thought
from tests import ROOT
from tests.support.models.messages_streams import BEFORE, ORIGIN, fails, outcome

FIXTURES = ROOT / "fixtures" / "providers" / "anthropic"
SIGNED = [f"c2lnbmVkLT{end}" for end in ("E=", "I=", "M=", "Q=", "U=", "Y=")]


def called(raw: str, arguments: dict[str, Any], *, number: int = 0, name: str = "bash") -> list[Piece]:
    """A call that came in one piece: what is told of it at once, and what at the end."""
    return [CallOpened(number, name), CallDelta(number, raw), Call(number, name, arguments, "native")]


def sealed(*content: dict[str, Any]) -> MetadataChunk:
    return MetadataChunk(OpaqueMetadata(ORIGIN, {"before": BEFORE, "content": list(content)}))


def thought(text: str, signature: str) -> dict[str, Any]:
    return {"type": "thinking", "thinking": text, "signature": signature}


def text(characters: int) -> dict[str, Any]:
    return {"type": "text", "characters": characters}


def used_id(id: str) -> dict[str, Any]:
    return {"type": "tool_use", "id": id}


LS = called('{"command": "ls"}', {"command": "ls"})
CALLS, STOP = Finished("tool_calls"), Finished("stop")
LONG = json.loads((FIXTURES / "thinking.sse").read_text("utf-8").split("signature_delta")[0].splitlines()[1][6:])
RM = '{"command": "rm -rf /tmp/bui'

EXPECTED: dict[str, Sequence[Piece | tuple[str, bool, int | None]]] = {
    "text.sse": [TextChunk("The tide turns at nine."), TokenUsage(25, 9, 0, 0), STOP],
    "cached.sse": [TextChunk("As before."), TokenUsage(2370, 5, 2048, 310), STOP],
    "tool_use.sse": [
        TextChunk("I'll look around."),
        *(CallOpened(0, "bash"), CallDelta(0, '{"comm'), CallDelta(0, 'and": "ls'), CallDelta(0, ' -l"}')),
        *(Call(0, "bash", {"command": "ls -l"}, "native"), TokenUsage(472, 61), CALLS),
    ],
    "parallel_tools.sse": [
        *LS[:2],
        *(CallOpened(1, "read_file"), CallDelta(1, '{"path": '), CallDelta(1, '"a"}')),
        *(LS[2], Call(1, "read_file", {"path": "a"}, "native")),
        *(CallOpened(2, "clock"), Call(2, "clock", {}, "native"), TokenUsage(512, 90), CALLS),
    ],
    "thinking_and_tool.sse": [
        *(Thought("I should look first."), TextChunk("Let me look.")),
        *(CallOpened(0, "bash"), CallDelta(0, '{"command":'), CallDelta(0, ' "ls"}'), LS[2]),
        sealed(thought("I should look first.", SIGNED[0]), text(12), used_id("toolu_01Dd")),
        *(TokenUsage(480, 88), CALLS),
    ],
    "thinking_omitted.sse": [*LS, sealed(thought("", SIGNED[1]), used_id("toolu_01Ee")), TokenUsage(480, 70), CALLS],
    "thinking_redacted.sse": [
        *(Thought("First this."), *LS),
        sealed(
            thought("First this.", SIGNED[2]),
            {"type": "redacted_thinking", "data": "dGhvdWdodHMgdGhhdCBub2JvZHkgbWF5IHJlYWQ="},
            used_id("toolu_01Ff"),
        ),
        *(TokenUsage(480, 90), CALLS),
    ],
    "thinking_between.sse": [
        *(Thought("One."), TextChunk("\n\nSo far so good."), Thought("Two."), *LS),
        sealed(thought("One.", SIGNED[3]), text(2), text(15), thought("Two.", SIGNED[4]), used_id("toolu_01Gg")),
        *(TokenUsage(480, 99), CALLS),
    ],
    "cut_by_max_tokens.sse": [TextChunk("A long story"), TokenUsage(30, 3), Finished("length")],
    "call_cut_by_max_tokens.sse": [
        *(CallOpened(0, "bash"), CallDelta(0, RM)),
        BadCall(
            0,
            RM,
            f"The arguments of bash were cut off after {len(RM)} characters, so nothing was run. "
            "Call bash again with one whole JSON object; if they are long, in smaller steps.",
        ),
        *(TokenUsage(30, 20), Finished("length")),
    ],
    "window_full.sse": [TextChunk("And then"), TokenUsage(199990, 10), Finished("length")],
    "refusal.sse": [
        *(TextChunk("I"), TokenUsage(60, 2)),
        ProviderNotice("refusal", "The model declined to answer: cyber: The request could enable harm."),
        Finished("content_filter"),
    ],
    "pause_turn.sse": [TextChunk("One moment."), TokenUsage(60, 4), Finished("pause_turn")],
    "stop_sequence.sse": [TextChunk("One, two,"), TokenUsage(60, 5), STOP],
    "server_tool.sse": [TextChunk("I search. Nine."), sealed(text(9), text(6)), TokenUsage(60, 40), STOP],
    "unknown_events.sse": [TextChunk("Hello"), TokenUsage(25, 2), STOP],
    "error_overloaded.sse": [TextChunk("Hel"), fails("model_down", True, 529)],
    "error_first.sse": [fails("model_failed", True, 500)],
    "error.json": [fails("model_busy", True, 429)],
    "no_message_stop.sse": [TextChunk("Hello"), TokenUsage(25, 2), STOP],
    "no_stop_reason.sse": [TextChunk("Hello"), fails("model_cut", True)],
    "gateway_zero_usage.sse": [TextChunk("Hello"), TokenUsage(471, 80), STOP],
    "gateway_whole_input.sse": [*LS, TokenUsage(10, 9), CALLS],
    "llama_cpp_text.sse": [TextChunk("The capital of France is Paris."), TokenUsage(29, 8, 0), STOP],
    "llama_cpp_too_long.json": [fails("model_context", False, 400)],
    "not_streamed.json": [
        *(Thought("Easy."), TextChunk("I look."), *LS),
        sealed(thought("Easy.", SIGNED[5]), text(7), used_id("toolu_01Ii")),
        *(TokenUsage(7, 2), CALLS),
    ],
}


def bodies() -> list[str]:
    return sorted(path.name for path in FIXTURES.iterdir() if path.suffix in (".sse", ".json"))


def test_every_stream_is_expected_and_told_of() -> None:
    assert bodies() == sorted([*EXPECTED, "thinking.sse"])
    told = (FIXTURES / "README.md").read_text("utf-8")
    assert [name for name in bodies() if f"| `{name}` |" not in told] == []


@pytest.mark.parametrize("name", EXPECTED)
def test_what_is_made_of_it(name: str) -> None:
    seen = [piece for piece in outcome([(FIXTURES / name).read_bytes()]) if not isinstance(piece, CallId)]
    assert seen == list(EXPECTED[name])


def test_thoughts_without_calls_are_sealed_as_well() -> None:
    pieces = outcome([(FIXTURES / "thinking.sse").read_bytes()])
    assert pieces[:2] == [Thought("A riddle. The answer is a map."), TextChunk("A map.")]
    (content,) = [piece.sealed.fields["content"] for piece in pieces if isinstance(piece, MetadataChunk)]
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
        ends = [piece for piece in pieces if isinstance(piece, Finished | tuple)]
        assert ends == pieces[-1:]
        found = [piece for piece in pieces if isinstance(piece, Call)]
        assert not found or found == calls
        assert isinstance(ends[0], Finished) or not [
            piece for piece in pieces if isinstance(piece, MetadataChunk | Call)
        ]


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_any_slicing_gives_the_same(data: st.DataObject) -> None:
    body = (FIXTURES / data.draw(st.sampled_from(bodies()))).read_bytes()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(body)), max_size=12)))
    parts = [body[begin:stop] for begin, stop in zip([0, *cuts], [*cuts, len(body)], strict=True)]
    assert flat(outcome(parts)) == flat(outcome([body]))
