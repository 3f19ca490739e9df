"""Native calls put together: whatever way a server cuts, numbers and names them, the same calls come out."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.models.wire import native_calls
from app.models.wire.native_calls import MAX_NAME, NativeCalls
from parsing import BadCall, Call, CallDelta, CallOpened, parse

Fragment = tuple[int, dict[str, Any]]  # of which call


@dataclass(frozen=True, slots=True)
class Manner:
    """How a server streams calls. `index` and `id` name what it does with each; `mixed` sends calls side by side."""

    index: str
    id: str
    mixed: bool

    @property
    def tells_apart(self) -> bool:
        """Whether fragments that come between those of another call can be told from them."""
        return self.index == "own"


MANNERS = st.builds(
    Manner,
    st.sampled_from(["own", "text", "null", "missing", "zero", "every"]),
    st.sampled_from(["own", "missing", "same", "every"]),
    st.booleans(),
)
VALUES = st.text(max_size=6) | st.integers() | st.booleans() | st.none() | st.lists(st.integers(), max_size=2)
CALLS = st.lists(
    st.tuples(st.sampled_from(["bash", "read_file"]), st.dictionaries(st.text(max_size=4), VALUES, max_size=3)),
    min_size=1,
    max_size=4,
)


def fragments_of(number: int, name: str, raw: str, sizes: Sequence[int], manner: Manner) -> Iterator[Fragment]:
    """One call as this server streams it: at least a character of its arguments comes with its name."""
    parts, rest = [], raw
    for size in sizes:
        parts.append(rest[:size])
        rest = rest[size:]
    for place, part in enumerate([*filter(None, parts), rest] if rest else filter(None, parts)):
        function = {"name": name, "arguments": part} if place == 0 else {"arguments": part}
        ids = {"own": f"x{number}", "same": "x", "every": f"x{number}-{place}"}
        id = {"id": ids[manner.id]} if manner.id in ids and (place == 0 or manner.id == "every") else {}
        index = {"own": number, "text": str(number), "null": None, "zero": 0, "every": 100 * number + place}
        yield number, ({"index": index[manner.index]} if manner.index in index else {}) | id | {"function": function}


def sent(calls: Sequence[tuple[str, dict[str, Any]]], manner: Manner, data: st.DataObject) -> list[dict[str, Any]]:
    sizes = st.lists(st.integers(1, 9), min_size=1, max_size=6)
    streams = [
        list(fragments_of(number, name, json.dumps(arguments), data.draw(sizes), manner))
        for number, (name, arguments) in enumerate(calls)
    ]
    ordered = [fragment for stream in streams for fragment in stream]
    if manner.mixed and manner.tells_apart:
        order = data.draw(st.permutations([number for number, _ in ordered]))
        left = [iter(stream) for stream in streams]
        ordered = [next(left[number]) for number in order]
    return [fragment for _, fragment in ordered]


@given(CALLS, MANNERS, st.data())
def test_however_a_server_streams_them_the_same_calls_come_out(
    calls: list[tuple[str, dict[str, Any]]], manner: Manner, data: st.DataObject
) -> None:
    if manner.id == "every" and manner.index not in ("own", "text"):
        return  # a new id with each fragment, and nothing else to go by
    reading = NativeCalls()
    events = [event for fragment in sent(calls, manner, data) for event in reading.add(fragment)]
    ended = list(reading.close(cut=False))
    found = {event.index: (event.name, event.arguments) for event in ended if isinstance(event, Call)}
    firsts = [event.index for event in (*events, *ended) if isinstance(event, CallOpened)]
    assert len(found) == len(calls) and firsts == sorted(firsts) == list(range(len(calls)))
    assert sorted(map(repr, found.values())) == sorted(map(repr, calls))
    if not manner.mixed:
        assert list(found.values()) == calls
    for index, (_, arguments) in found.items():
        written = "".join(event.text for event in events if isinstance(event, CallDelta) and event.index == index)
        assert json.loads(written) == arguments  # what was shown is what is run


ANYTHING = (
    st.none() | st.booleans() | st.integers(-2, 3) | st.sampled_from(["", "x", "bash", '{"a":', "1}", "{}", "null"])
)
ODD = st.recursive(
    ANYTHING,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=2), inner, max_size=2),
    max_leaves=4,
)
FRAGMENTS = ODD | st.fixed_dictionaries(
    {},
    optional={
        "index": ODD,
        "id": ODD,
        "function": ODD | st.fixed_dictionaries({}, optional={"name": ODD, "arguments": ODD}),
    },
)


@given(st.lists(st.tuples(FRAGMENTS, st.none() | st.integers(0, 3)), max_size=12), st.booleans())
def test_of_any_fragments_each_call_ends_once_and_is_run_only_if_it_is_whole(
    fragments: list[tuple[Any, int | None]], cut: bool
) -> None:
    reading = NativeCalls()
    events = [event for fragment, place in fragments for event in reading.add(fragment, place)]
    ended = list(reading.close(cut=cut))
    opened = [event.index for event in (*events, *ended) if isinstance(event, CallOpened)]
    ends = [event.index for event in ended if isinstance(event, Call | BadCall)]
    assert ends == list(range(len(ends))) and len(opened) == len(set(opened)) and set(opened) <= set(ends)
    for event in ended:
        written = "".join(one.text for one in events if isinstance(one, CallDelta) and one.index == event.index)
        assert not isinstance(event, Call) or isinstance(event.arguments, dict)
        assert not isinstance(event, Call) or event.name
        if isinstance(event, BadCall) and event.index in opened:
            assert event.raw == written


def test_an_empty_object_may_come_before_the_arguments() -> None:
    """Proxies of servers whose calls begin with one send it as a fragment like any other."""
    calls = NativeCalls()
    for written in ("{}", '{"command":', ' "ls"}'):
        calls.add({"index": 0, "function": {"arguments": written} | ({"name": "bash"} if written == "{}" else {})})
    assert list(calls.close(cut=False)) == [Call(0, "bash", {"command": "ls"}, "native")]


LS = {"command": "ls"}
# What models write instead of JSON, and what it can only mean. The reader is that of calls in text.
REPAIRED = {
    "a trailing comma": ('{"command": "ls",}', LS),
    "a bare name": ('{command: "ls"}', LS),
    "single quotes": ("{'command': 'ls'}", LS),
    "words of Python": (
        '{"command": "ls", "pty": True, "time_limit_s": None}',
        LS | {"pty": True, "time_limit_s": None},
    ),
    "comments": ('{"command": "ls" // what\'s {there\n, /* and "in" it */ }', LS),
    "a raw line end": ('{"command": "ls\n pwd"}', {"command": "ls\n pwd"}),
    "a doubled text": ('"{\\"command\\": \\"ls\\"}"', LS),
    "a doubled text that is no JSON": ("\"{command: 'ls'}\"", LS),
    "quotes inside": ('{"command": "echo "hi""}', {"command": 'echo "hi"'}),
}


def read_natively(raw: str, *, cut: bool = False, size: int = 3) -> Call | BadCall:
    """The arguments of one call, in pieces."""
    calls = NativeCalls()
    for at in range(0, len(raw), size):
        calls.add({"index": 0, "function": {"arguments": raw[at : at + size]} | ({} if at else {"name": "bash"})})
    ended = list(calls.close(cut=cut))[-1]
    assert isinstance(ended, Call | BadCall)
    return ended


@pytest.mark.parametrize("row", REPAIRED)
def test_arguments_that_are_no_json_are_read_as_in_text_and_noted(row: str) -> None:
    raw, arguments = REPAIRED[row]
    call = read_natively(raw)
    assert isinstance(call, Call) and call.arguments == arguments and call.repairs
    written = f'<tool_call>{{"name": "bash", "arguments": {raw}}}</tool_call>'
    in_text = parse(written, {"bash": {}}).calls
    assert [one.arguments for one in in_text] in ([arguments], [])  # comments end in text where their quotes do


@pytest.mark.parametrize("row", REPAIRED)
def test_what_was_cut_is_not_repaired(row: str) -> None:
    """Its beginning may look like the whole."""
    raw, arguments = REPAIRED[row]
    call = read_natively(raw, cut=True)
    if isinstance(call, Call):  # a decoder takes these as they are
        assert row in ("a raw line end", "a doubled text") and call.arguments == arguments
    else:
        assert "cut off" in call.reason


def test_json_is_not_noted() -> None:
    assert read_natively('{"command": "ls"}') == Call(0, "bash", LS, "native")


@pytest.mark.parametrize(
    "raw",
    [
        '{"command": ls}', "{'command': 'ls'", '{"command": "ls"} {"command": "pwd"}', "ls", "['ls']", "{command ls}",
        "{'n': NaN}", "[" * 100_000, "{a:" * 100_000, "{a: '" + "\\n" * 500_000,
    ],
)  # fmt: skip
def test_what_has_no_single_reading_is_taught(raw: str) -> None:
    bad = read_natively(raw, size=4096)
    assert isinstance(bad, BadCall) and "Call bash again with one whole JSON object" in bad.reason


def test_calls_under_one_index_are_told_apart_though_they_are_no_json() -> None:
    calls = NativeCalls()
    for raw in ("{command: 'ls'}", "{command: 'pwd'}"):
        calls.add({"index": 0, "function": {"name": "bash", "arguments": raw}})
    found = [event.arguments for event in calls.close(cut=False) if isinstance(event, Call)]
    assert found == [LS, {"command": "pwd"}]


def test_a_name_without_an_end_is_no_call_and_is_not_kept() -> None:
    calls = NativeCalls()
    for piece in ("word " * 4000, "drow " * 4000) * 100:
        calls.add({"index": 0, "id": "x" * 100_000, "function": {"name": piece}})
    opened, bad = calls.close(cut=False)
    assert isinstance(opened, CallOpened) and len(opened.name) == MAX_NAME + 1
    assert isinstance(bad, BadCall) and f"longer than {MAX_NAME} characters" in bad.reason
    [slot] = calls._slots
    assert len(slot.id) <= MAX_NAME + 1


def test_a_name_of_the_longest_length_is_one() -> None:
    calls = NativeCalls()
    for piece in ("a" * 100, "b" * (MAX_NAME - 100)):
        calls.add({"index": 0, "function": {"name": piece}})
    assert list(calls.close(cut=False))[-1] == Call(0, "a" * 100 + "b" * (MAX_NAME - 100), {}, "native")


def test_indexes_that_count_fragments_are_not_kept() -> None:
    calls = NativeCalls()
    calls.add({"index": 0, "function": {"name": "bash", "arguments": '{"command": "'}})
    for index in range(1, 1000):
        calls.add({"index": index, "function": {"arguments": "x"}})
    calls.add({"index": 1000, "function": {"arguments": '"}'}})
    assert list(calls.close(cut=False)) == [Call(0, "bash", {"command": "x" * 999}, "native")]
    assert len(calls._by_index) == 1


@pytest.mark.parametrize("piece", ['{"b": 1}', "{xx}", '{"', "}", "{}{", "{\\"])
def test_each_character_is_looked_at_once_however_often_a_call_may_be_whole(
    piece: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a name with each fragment that looks like an object. Counted: what is decoded, and what is read of it."""
    decoded, read = native_calls.decoded, native_calls.Brackets.read
    seen = 0

    def decoding(raw: str) -> Any:
        nonlocal seen
        seen += len(raw)
        return decoded(raw)

    def reading(brackets: native_calls.Brackets, part: str) -> None:
        nonlocal seen
        seen += len(part)
        read(brackets, part)

    monkeypatch.setattr(native_calls, "decoded", decoding)
    monkeypatch.setattr(native_calls.Brackets, "read", reading)
    calls = NativeCalls()
    for written in ('{"a": "', *[piece] * 1000):
        calls.add({"index": 0, "function": {"name": "bash", "arguments": written}})
    assert seen <= 2 * (7 + 1000 * len(piece))


MARKS = st.text('a\\"{}[] ', max_size=6)
JSON_TEXTS = st.dictionaries(MARKS, MARKS, max_size=3).map(json.dumps)


@given(st.lists(JSON_TEXTS, min_size=1, max_size=3), st.integers(1, 5))
def test_objects_one_after_the_other_under_one_index_are_calls(texts: list[str], size: int) -> None:
    """Wherever their strings are cut: a call ends where its object does."""
    calls = NativeCalls()
    for text in texts:
        for at in range(0, len(text), size):
            function = {"name": "bash"} if at == 0 else {}
            calls.add({"index": 0, "function": {"arguments": text[at : at + size], **function}})
    found = [event.arguments for event in calls.close(cut=False) if isinstance(event, Call)]
    assert found == [json.loads(text) for text in texts]
