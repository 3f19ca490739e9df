"""Histories for requests to models."""

from __future__ import annotations

from hypothesis import strategies as st
from msgspec.structs import replace

from app.core.messages import AskedCall, Message
from app.models.wire.native_calls import NATIVE

HEAD = [Message("system", "You are an assistant. " * 3)]


def measured(message: Message) -> int:
    return 5 + len(message.text) // 4


def turn(number: int, rounds: int, size: int) -> list[Message]:
    said = [Message("user", f"Question {number} {'q' * size}")]
    for one in range(rounds):
        call = AskedCall(f"c{number}x{one}", "bash", {}, NATIVE)
        said += [Message("assistant", "", (call,)), Message("tool", "r" * size, call=call.id, name="bash")]
    return [*said, Message("assistant", f"Answer {number}.")]


HISTORIES = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 400)), min_size=1, max_size=20).map(
    lambda turns: [message for at, (rounds, size) in enumerate(turns) for message in turn(at, rounds, size)]
)


LS = AskedCall("call_1", "bash", {"command": "ls"}, "native")
READ = AskedCall("call_2", "read_file", {"path": "a"}, "native")
TAUGHT = Message("system", "Tools: bash.")
CALLS = st.sampled_from([LS, READ, replace(LS, id=""), replace(READ, id="call_1"), replace(LS, id="x" * 99)])
MESSAGES = st.builds(
    Message,
    st.sampled_from(["system", "user", "assistant", "tool"]),
    st.text(max_size=8),
    st.lists(CALLS, max_size=3).map(tuple),
    st.sampled_from([None, "", "call_1", "call_2", "x" * 99]),
).map(lambda message: message if message.role == "assistant" else replace(message, calls=()))


async def store_nothing() -> None:
    """Nothing is kept."""
