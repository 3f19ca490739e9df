"""What is made of each odd answer, whole and cut at every byte."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

import pytest

from app.core.messages import OpaqueMetadata
from app.core.provider import Finished, MetadataChunk, Piece, ProviderFailed, ProviderNotice, TextChunk, TokenUsage
from app.models.http.answer_stream import TooManyCalls
from app.models.http.sse import Event, EventReader, EventTooLarge
from app.models.wire.native_calls import IN_A_STRING, MAX_CALLS, NOT_JSON, NativeCalls
from app.models.wire.openai.answer import WHY_FILTERED, ChatAnswer
from parsing import BadCall, Call, CallDelta, CallOpened, Thought
from tests.support.models.answers import FIXTURES, ORIGIN, URL, Fails, bad, both, called, check, read, told

HELLO: list[Piece] = [TextChunk("Hello"), Finished("stop")]
USED = TokenUsage(7, 2)
FOUND: list[Piece] = [TextChunk("Hello"), TokenUsage(7, 2, 5), Finished("stop")]


LS = called("bash", '{"command":"ls"}', {"command": "ls"})
IN_TWO: list[Piece] = [CallOpened(0, "bash"), CallDelta(0, '{"comm'), CallDelta(0, 'and":"ls"}'), *LS[2:]]


def two_calls(first: str, second: str, second_name: str = "read_file") -> list[Piece]:
    opened: list[Piece] = [CallOpened(0, "bash"), CallDelta(0, first), CallOpened(1, second_name), CallDelta(1, second)]
    return opened + both("bash", second_name)


TWICE: list[Piece] = [
    *(CallOpened(0, "bash"), CallDelta(0, '{"command":"ls"}')),
    *(CallOpened(1, "bash"), CallDelta(1, '{"command":"pwd"}')),
    Call(0, "bash", {"command": "ls"}, "native"),
    Call(1, "bash", {"command": "pwd"}, "native"),
    Finished("tool_calls"),
]


CUT = "The arguments of bash were cut off after {} characters, so nothing was run. "
AGAIN = "Call bash again with one whole JSON object"
SMALLER = f"{AGAIN}; if they are long, in smaller steps."
UNREADABLE = "The arguments of bash cannot be read: "
RM = '{"command":"rm -rf /tmp/bui'

DETAILS = [
    {
        "type": "reasoning.text",
        "format": "anthropic-claude-v1",
        "index": 0,
        "signature": "EqQBCgIYAg==",
        "text": "I should look.",
    },
    {"type": "reasoning.encrypted", "id": "rs_1", "index": 1, "data": "gAAAAABo95Ad"},
]
SIGNED = OpaqueMetadata(ORIGIN, {"extra_content": {"google": {"thought_signature": "CrICAdHtim827fQ+/9=="}}})

EXPECTED: dict[str, Sequence[Piece | Fails]] = {
    "odd/reasoning_and_call.sse": [
        Thought("I should look."),
        *(CallOpened(0, "bash"), CallDelta(0, '{"command":'), CallDelta(0, '"ls"}'), *LS[2:]),
    ],
    "odd/reasoning_details.sse": [
        Thought("I should look."),
        *LS[:-1],
        MetadataChunk(OpaqueMetadata(ORIGIN, {"reasoning_details": DETAILS})),
        LS[-1],
    ],
    "odd/call_signed.sse": [
        *two_calls('{"command":"ls"}', '{"path":"a"}')[:4],
        MetadataChunk(SIGNED, 0),
        *both("bash", "read_file")[:2],
        Finished("stop"),
    ],
    "odd/no_space_after_colon.sse": HELLO,
    "odd/crlf.sse": HELLO,
    "odd/cr_only.sse": HELLO,
    "odd/byte_order_mark.sse": HELLO,
    "odd/comments.sse": HELLO,
    "odd/other_fields.sse": HELLO,
    "odd/single_newlines.sse": HELLO,
    "odd/several_data_lines.sse": HELLO,
    "odd/no_done.sse": HELLO,
    "odd/no_last_blank_line.sse": HELLO,
    "odd/no_finish_reason.sse": HELLO,
    "odd/usage_without_choices.sse": [TextChunk("Hello"), USED, Finished("stop")],
    "odd/usage_absurd.sse": [TextChunk("Hello"), USED, Finished("stop")],
    "odd/usage_twice.sse": [TextChunk("Hello"), USED, Finished("stop")],
    "odd/usage_prompt_first.sse": [TextChunk("Hel"), TokenUsage(7, 0), TextChunk("lo"), USED, Finished("stop")],
    "odd/usage_zero_last.sse": [TextChunk("Hello"), USED, Finished("stop")],
    "odd/usage_groq.sse": FOUND,
    "odd/usage_thoughts_in_total.sse": [TextChunk("Hello"), TokenUsage(7, 33), Finished("stop")],
    "odd/usage_thoughts_beside.sse": [TextChunk("Hello"), TokenUsage(7, 33), Finished("stop")],
    "odd/usage_thoughts_within.sse": [TextChunk("Hello"), TokenUsage(7, 33), Finished("stop")],
    "odd/usage_cache_written.sse": [TextChunk("Hello"), TokenUsage(7, 2, 2, 4), Finished("stop")],
    "odd/usage_total_odd.sse": [TextChunk("Hello"), USED, Finished("stop")],
    "odd/usage_on_last_delta.sse": [TextChunk("Hello"), USED, Finished("stop")],
    "odd/usage_in_every_chunk.sse": [TextChunk("Hel"), TokenUsage(7, 1), TextChunk("lo"), USED, Finished("stop")],
    **dict.fromkeys(("odd/usage_cached_hit.sse", "odd/usage_cached_beside.sse", "odd/usage_cached_timings.sse"), FOUND),
    "odd/null_fields.sse": HELLO,
    "odd/empty_data.sse": HELLO,
    "odd/reasoning_content.sse": [Thought("Hm, easy."), *HELLO],
    "odd/reasoning.sse": [Thought("Hm, easy."), *HELLO],
    "odd/reasoning_twice.sse": [Thought("Hm, easy."), *HELLO],
    "odd/thinking.sse": [Thought("Hm, easy."), *HELLO],
    "odd/content_parts.sse": [Thought("Hm, easy."), *HELLO],
    "odd/other_choices.sse": HELLO,
    "odd/after_done.sse": HELLO,
    "odd/broken_utf8.sse": [TextChunk("Hel\ufffdlo"), Finished("stop")],
    "odd/line_separators.sse": [TextChunk("a\u2028b\u2029c\x85d\x0be"), Finished("stop")],
    "odd/split_surrogates.sse": [TextChunk("\ud83d\ude00"), Finished("stop")],
    "odd/call.sse": IN_TWO,
    "odd/call_no_index.sse": two_calls('{"command":"ls"}', '{"path":"a"}'),
    "odd/call_null_index.sse": [
        *(CallOpened(0, "bash"), CallDelta(0, '{"comm'), CallDelta(0, 'and":"ls"}')),
        *(CallOpened(1, "read_file"), CallDelta(1, '{"pa'), CallDelta(1, 'th":"a"}')),
        *both("bash", "read_file"),
    ],
    "odd/call_index_reused.sse": TWICE,
    "odd/call_index_reused_no_id.sse": two_calls('{"command":"ls"}', '{"path":"a"}'),
    "odd/call_interleaved.sse": [
        *(CallOpened(0, "read_file"), CallDelta(0, '{"pa')),
        *(CallOpened(1, "bash"), CallDelta(1, '{"comm')),
        *(CallDelta(0, 'th":"a"}'), CallDelta(1, 'and":"ls"}')),
        *both("read_file", "bash"),
    ],
    "odd/call_id_every_fragment.sse": [
        *(CallOpened(0, "bash"), CallDelta(0, '{"comm'), CallDelta(0, 'and":'), CallDelta(0, '"ls"}')),
        *LS[2:],
    ],
    "odd/call_name_repeated.sse": IN_TWO,
    "odd/call_name_in_pieces.sse": called("read_file", '{"path":"a"}', {"path": "a"}),
    "odd/call_arguments_null.sse": called("list_files", "", {}),
    "odd/call_arguments_empty.sse": called("list_files", "", {}),
    "odd/call_arguments_empty_list.sse": called("list_files", "[]", {}),
    "odd/call_arguments_object.sse": called("bash", '{"command": "ls"}', {"command": "ls"}),
    "odd/call_arguments_twice_encoded.sse": called(
        "bash", r'"{\"command\": \"ls\"}"', {"command": "ls"}, repairs=(IN_A_STRING,)
    ),
    "odd/call_arguments_raw_newline.sse": called(
        "bash",
        '{"command":"ls\npwd"}',
        {"command": "ls\npwd"},
        repairs=(NOT_JSON.format(why="Invalid control character at"),),
    ),
    "odd/call_arguments_list.sse": bad('["ls"]', f"{UNREADABLE}they are a JSON list, not an object. {AGAIN}."),
    "odd/call_arguments_nan.sse": bad('{"limit":NaN}', f"{UNREADABLE}'NaN' is not a value. {AGAIN}."),
    "odd/call_arguments_broken.sse": called(
        "bash",
        "{'command': 'ls'}",
        {"command": "ls"},
        repairs=(NOT_JSON.format(why="Expecting property name enclosed in double quotes"),),
    ),
    "odd/call_arguments_truncated.sse": bad(f"{RM}ld/old", CUT.format(33) + SMALLER),
    "odd/call_cut_by_length.sse": [
        *(CallOpened(0, "bash"), CallDelta(0, '{"command":"ls"}'), CallOpened(1, "bash"), CallDelta(1, RM)),
        Call(0, "bash", {"command": "ls"}, "native"),
        BadCall(1, RM, CUT.format(27) + SMALLER),
        Finished("length"),
    ],
    "odd/call_cut_before_arguments.sse": [
        CallOpened(0, "bash"),
        BadCall(0, "", f"The call of bash was cut off before its arguments. {AGAIN}."),
        Finished("length"),
    ],
    "odd/call_nameless.sse": [
        BadCall(0, '{"command":"ls"}', "A tool call came without a name. Call again, with the tool's name."),
        Finished("tool_calls"),
    ],
    "odd/call_finish_stop.sse": [*LS[:3], Finished("stop")],
    "odd/function_call.sse": [*LS[:3], Finished("function_call")],
    "odd/call_fragments_not_objects.sse": LS,
    "odd/call_by_place.sse": [
        *(CallOpened(0, "bash"), CallDelta(0, '{"comm'), CallOpened(1, "read_file"), CallDelta(1, '{"pa')),
        *(CallDelta(0, 'and":"ls"}'), CallDelta(1, 'th":"a"}')),
        *both("bash", "read_file"),
    ],
    **dict.fromkeys(("odd/call_id_repeated.sse", "odd/call_index_reused_same_name.sse"), TWICE),
    "odd/call_cut_out_of_order.sse": [
        *(CallOpened(1, "bash"), CallDelta(1, '{"command":"ls"}'), CallOpened(0, "bash")),
        BadCall(0, "", f"The call of bash was cut off before its arguments. {AGAIN}."),
        Call(1, "bash", {"command": "ls"}, "native"),
        Finished("length"),
    ],
    "odd/call_promised.sse": [TextChunk("Hello"), Finished("tool_calls")],
    "odd/call_promised_only.sse": [Fails("model_cut", True, "announces a call")],
    "odd/call_metadata_alone.sse": [*LS[:2], MetadataChunk(SIGNED, 0), LS[2], Finished("stop")],
    "odd/given_up.sse": [TextChunk("Hello"), Fails("model_cut", True, "insufficient_system_resource")],
    "odd/limit_named_otherwise.sse": [TextChunk("Hello"), Finished("length")],
    "odd/only_done.sse": [Fails("model_cut", True, "before it began")],
    "odd/error_message.sse": [Fails("model_failed", True, "inference failed")],
    "odd/error_after_reason.sse": [TextChunk("Hello"), USED, Finished("stop")],
    "odd/error_event_after_reason.sse": HELLO,
    "odd/error_bare_line.sse": [TextChunk("Hel"), Fails("model_failed", True, "unexpectedly stopped")],
    "odd/blank_lines_first.sse": HELLO,
    "odd/plain_json.json": [TextChunk("Hello"), *LS[:3], USED, Finished("tool_calls")],
    "odd/error_json.json": [Fails("model_not_found", False, "model 'x' is not loaded")],
    "odd/other_json.json": [Fails("model_garbled", False, "ending in /v1")],
    "odd/page.html": [Fails("model_garbled", False, "a web page")],
    "odd/plain_text.txt": [Fails("model_garbled", False, "'It works!'")],
    "odd/empty.sse": [Fails("model_cut", True, "set DRAGOMAN_WINDOW")],
    "odd/error_in_stream.sse": [TextChunk("Hel"), Fails("model_failed", True, "CUDA out of memory")],
    "odd/error_event.sse": [TextChunk("Hel"), Fails("model_busy", True, "Rate limit reached")],
    "odd/error_field.sse": [TextChunk("Hel"), Fails("model_failed", True, "slot unavailable")],
    "odd/error_sentence.sse": [Fails("model_context", False, "DRAGOMAN_WINDOW")],
    "odd/error_object_vllm.sse": [Fails("model_context", False, "4096 tokens")],
    "odd/cut_inside_chunk.sse": [TextChunk("Hel"), Fails("model_cut", True, "inside a chunk")],
    "odd/cut_between_chunks.sse": [TextChunk("Hello"), Fails("model_cut", True, "without a finish_reason")],
    "odd/cut_inside_call.sse": [CallOpened(0, "bash"), CallDelta(0, RM), Fails("model_cut", True, "broke off")],
    "odd/invalid_json.sse": [TextChunk("Hel"), Fails("model_garbled", True, "{oops}")],
    "odd/chunk_not_object.sse": [Fails("model_garbled", True, "not an object")],
    "odd/deep_json.sse": [Fails("model_garbled", True, "sent a chunk that is not")],
}


@pytest.mark.parametrize("name", EXPECTED)
def test_each_answer_gives_its_pieces(name: str) -> None:
    check(name, EXPECTED[name])


@pytest.mark.parametrize("name", EXPECTED)
def test_a_cut_anywhere_changes_nothing(name: str) -> None:
    body = (FIXTURES / name).read_bytes()
    whole = told(read([body]))
    for at in range(len(body)):
        assert told(read([body[:at], body[at:]])) == whole, f"cut at byte {at}"


@pytest.mark.parametrize("name", EXPECTED)
def test_one_byte_at_a_time_changes_nothing(name: str) -> None:
    body = (FIXTURES / name).read_bytes()
    assert told(read([bytes([byte]) for byte in body])) == told(read([body]))


def test_every_fixture_is_expected_and_described() -> None:
    files = {f"odd/{path.name}" for path in (FIXTURES / "odd").glob("*") if path.suffix != ".md"}
    assert files == set(EXPECTED)
    described = re.findall(r"^\| `([^`]+)` \| \S+ \S+", (FIXTURES / "odd" / "README.md").read_text(), re.MULTILINE)
    assert sorted(f"odd/{name}" for name in described) == sorted(files)


def test_an_event_over_the_bound_is_refused_in_any_slicing() -> None:
    for sizes in (1, 7, 100):
        reader = EventReader(max_bytes=64)
        body = b"data: " + b"x" * 100
        with pytest.raises(EventTooLarge):
            for at in range(0, len(body), sizes):
                reader.feed(body[at : at + sizes])


def test_the_bound_is_for_one_event_not_for_the_stream() -> None:
    reader = EventReader(max_bytes=64)
    assert len([event for _ in range(100) for event in reader.feed(b"data: abc\n\n")]) == 100


def test_an_event_has_its_name() -> None:
    events = EventReader().feed(b"id: 7\nevent: text.delta\ndata: {}\n\ndata: a\ndata:b\n\n")
    assert events == [Event("{}", "text.delta"), Event("a\nb", "message")]


def test_a_byte_order_mark_counts_for_nothing_at_the_start_only() -> None:
    mark, plain = b"\xef\xbb\xbf", b"data: a\n\n"
    assert EventReader().feed(mark + plain) == EventReader().feed(plain) == [Event("a")]
    reader = EventReader()
    assert reader.feed(plain) + reader.feed(mark + plain) == [Event("a")], "later it is part of a field's name"


def test_a_megabyte_that_comes_in_small_pieces_is_joined_once() -> None:
    reader, text = EventReader(), b"x" * 1_000_000
    body = b"data: " + text + b"\n\n"
    events = [event for at in range(0, len(body), 16) for event in reader.feed(body[at : at + 16])]
    assert [len(event.data) for event in events] == [len(text)]


def test_calls_without_end_are_refused() -> None:
    calls = NativeCalls()
    with pytest.raises(TooManyCalls):
        for number in range(MAX_CALLS + 1):
            calls.add({"id": f"c{number}", "function": {"name": "bash", "arguments": "{}"}})


def test_too_many_calls_of_an_answer_that_is_no_stream_are_refused() -> None:
    call = {"function": {"name": "bash", "arguments": "{}"}}
    body = {"choices": [{"message": {"tool_calls": [call] * (MAX_CALLS + 1)}, "finish_reason": "tool_calls"}]}
    answer = ChatAnswer(URL)
    assert list(answer.feed(json.dumps(body).encode())) == []
    with pytest.raises(ProviderFailed, match="too many calls"):
        answer.close()


def test_a_content_filter_is_a_refusal_and_no_whole_answer() -> None:
    answer = ChatAnswer(URL)
    chunk = {"choices": [{"delta": {"content": "Hello"}, "finish_reason": "content_filter"}]}
    pieces = [*answer.feed(f"data: {json.dumps(chunk)}\n\n".encode()), *answer.close()]
    assert pieces == [TextChunk("Hello"), ProviderNotice("refusal", WHY_FILTERED), Finished("content_filter")]


def test_a_usage_in_every_chunk_is_passed_on_now_and_then() -> None:
    """A budget that ends in the middle of an answer is noticed there."""
    answer, reported = ChatAnswer(URL), []
    for count in range(1, 200):
        chunk = {"choices": [{"delta": {"content": "a"}}], "usage": {"prompt_tokens": 7, "completion_tokens": count}}
        pieces = answer.feed(f"data: {json.dumps(chunk)}\n\n".encode())
        reported += [piece.completion_tokens for piece in pieces if isinstance(piece, TokenUsage)]
    assert reported == [1, 65, 129, 193]
