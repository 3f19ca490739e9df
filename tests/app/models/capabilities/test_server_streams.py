"""What is made of the streams of the servers that people use: whole, in any slicing, and cut at every byte."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from itertools import accumulate, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.provider import TextChunk
from app.models.capabilities.server_profiles import PROFILES
from app.models.http.answer_stream import joined
from tests.support.documented.servers import OTHERS, folder_of
from tests.support.models.answers import FIXTURES, Outcome, outcome, read, read_offered
from tests.support.models.pictures import png
from tests.support.nightly import at_night

THOUGHT = "I should look."
LS, CAT = ("bash", {"command": "ls"}), ("read_file", {"path": "a.txt"})
HERMES = "\n".join(
    f'<tool_call>\n{{"name": "{name}", "arguments": {json.dumps(arguments)}}}\n</tool_call>'
    for name, arguments in (LS, CAT)
)
NOTE = ("read_file", {"path": "note.txt"})
SAID = Outcome("It is noon.", used=(21, 4, None), end="stop")
THOUGHT_OF = replace(SAID, thought=THOUGHT)
CALLED = Outcome(calls=(LS, CAT), used=(21, 4, None), end="tool_calls")
FAILED = Outcome("It is", end="model_failed")
DOWN = replace(FAILED, end="model_down")
SLOW, COOKED = (374, 61, 256), (90, 50, 64)
TOLD = Outcome("The capital of France is Paris.", used=(16, 8, 0), end="stop")

EXPECTED = {
    "llama_cpp/text.sse": TOLD,
    "llama_cpp/plain_answer.sse": replace(TOLD, used=None),
    "llama_cpp/fenced_call_with_usage.sse": Outcome('```bash\necho "Hello, World!"\n```', used=(86, 12, 0), end="stop"),
    "llama_cpp/reasoning.sse": Outcome("It is 2.", "Easy.\n", used=(125, 14, 5), end="stop"),
    "llama_cpp/parallel_calls.sse": replace(CALLED, used=(748, 62, 106)),
    "llama_cpp/call_cut_by_length.sse": Outcome(bad=1, used=(469, 15, 468), end="length"),
    "llama_cpp/cut_by_length.sse": Outcome("The story of a young woman", used=(35, 6, 24), end="length"),
    "llama_cpp/not_streamed.json": Outcome("I'm glad you're here", used=(32, 6, 24), end="length"),
    "llama_cpp/context_too_long.json": Outcome(end="model_context"),
    "llama_cpp/refused_tools.json": Outcome(end="model_failed"),
    "vllm/text.sse": replace(SAID, used=(66, 5, None)),
    "vllm/reasoning.sse": Outcome("\n\nIt is noon.", f"\n{THOUGHT}\n", used=(66, 15, None), end="stop"),
    "vllm/reasoning_before.sse": THOUGHT_OF,
    "vllm/reasoning_and_call.sse": Outcome("\n\n", f"\n{THOUGHT}\n", (NOTE,), used=(256, 43, None), end="tool_calls"),
    "vllm/whole_reasoning.sse": Outcome(thought=SAID.text, used=(66, 5, None), end="stop"),
    "vllm/parallel_calls.sse": replace(CALLED, used=(129, 62, None)),
    "vllm/error_in_stream.sse": Outcome("1 2 3", used=(13, 59, None), end="model_failed"),
    "vllm/context_too_long.json": Outcome(end="model_context"),
    "vllm/no_such_model.json": Outcome(end="model_not_found"),
    "vllm/refused_effort.json": Outcome(end="model_rejected"),
    "vllm/refused_temperature.json": Outcome(end="model_rejected"),
    "vllm/refused_tools.json": Outcome(end="model_rejected"),
    "litellm/text.sse": replace(SAID, used=(66, 5, None)),
    "litellm/reasoning.sse": Outcome(f"<think>\n{THOUGHT}\n</think>\n\nIt is noon.", used=(66, 15, None), end="stop"),
    "litellm/parallel_calls.sse": replace(CALLED, used=(129, 62, None)),
    "litellm/context_too_long.json": Outcome(end="model_context"),
    "litellm/no_such_model.json": Outcome(end="model_not_found"),
    "litellm/refused_effort.json": Outcome(end="model_rejected"),
    "litellm/refused_temperature.json": Outcome(end="model_rejected"),
    "llama_cpp_python/text.sse": replace(SAID, used=None),
    "llama_cpp_python/reasoning.sse": Outcome(f"<think>\n{THOUGHT}\n</think>\n\nIt is noon.", end="stop"),
    "llama_cpp_python/parallel_calls.sse": Outcome(HERMES, end="stop"),
    "llama_cpp_python/context_too_long.json": Outcome(end="model_context"),
    "transformers_serve/text.sse": replace(SAID, used=(66, 5, None)),
    "transformers_serve/reasoning.sse": Outcome("\n\nIt is noon.", f"\n{THOUGHT}\n", used=(66, 15, None), end="stop"),
    "transformers_serve/parallel_calls.sse": replace(CALLED, used=(129, 62, None)),
    "transformers_serve/no_such_model.json": Outcome(end="model_garbled"),
    "transformers_serve/refused_field.json": Outcome(end="model_garbled"),
    "sglang/text.sse": SAID,
    "sglang/reasoning.sse": THOUGHT_OF,
    "sglang/parallel_calls.sse": CALLED,
    "sglang/context_too_long.sse": Outcome(end="model_context"),
    "sglang/aborted.sse": replace(FAILED, end="model_cut"),
    "ollama/text.sse": SAID,
    "ollama/reasoning.sse": THOUGHT_OF,
    "ollama/parallel_calls.sse": CALLED,
    "ollama/parallel_calls_before.sse": replace(CALLED, calls=(LS, ("bash", {"command": "pwd"})), end="stop"),
    "ollama/error_in_stream.sse": FAILED,
    "lm_studio/text.sse": SAID,
    "lm_studio/reasoning.sse": THOUGHT_OF,
    "lm_studio/parallel_calls.sse": CALLED,
    "lm_studio/error_in_stream.sse": FAILED,
    "openai/text.sse": replace(SAID, used=(21, 4, 16)),
    "openai/parallel_calls.sse": replace(CALLED, used=(21, 4, 16)),
    "openai/error_in_stream.sse": FAILED,
    "openai/refused_limit.json": Outcome(end="model_rejected"),
    "openrouter/text.sse": replace(SAID, used=(21, 4, 0)),
    "openrouter/picture.sse": replace(SAID, used=(21, 4, 0), pictures=(png(),)),
    "openrouter/reasoning.sse": replace(CALLED, calls=(LS,), thought=THOUGHT, sealed=1, used=(21, 4, 0)),
    "openrouter/parallel_calls.sse": replace(CALLED, used=(21, 4, 0)),
    "openrouter/error_in_stream.sse": DOWN,
    "openrouter/error_after_reason.sse": Outcome("It is", used=(21, 4, 0), end="length"),
    "deepseek/text.sse": replace(SAID, used=SLOW),
    "deepseek/reasoning_and_call.sse": replace(CALLED, calls=(LS,), thought=THOUGHT, used=SLOW),
    "deepseek/parallel_calls.sse": replace(CALLED, used=SLOW),
    "deepseek/given_up.sse": replace(FAILED, used=SLOW, end="model_cut"),
    "deepseek/error_in_stream.sse": Outcome(end="model_down"),
    "moonshot/text.sse": replace(SAID, used=COOKED),
    "moonshot/reasoning.sse": replace(THOUGHT_OF, used=COOKED),
    "moonshot/parallel_calls.sse": replace(CALLED, used=COOKED),
    "moonshot/error_in_stream.sse": DOWN,
    "mistral/text.sse": replace(SAID, used=(21, 4, 0)),
    "mistral/reasoning.sse": replace(THOUGHT_OF, used=(21, 4, 0)),
    "mistral/parallel_calls.sse": replace(CALLED, used=(21, 4, 0)),
    "mistral/limited.sse": Outcome("It is", used=(21, 4, 0), end="length"),
    "mistral/refused_usage.json": Outcome(end="model_rejected"),
    "mistral/error_in_stream.sse": FAILED,
    "groq/text.sse": SAID,
    "groq/reasoning.sse": THOUGHT_OF,
    "groq/parallel_calls.sse": CALLED,
    "groq/error_in_stream.sse": Outcome(thought=THOUGHT, end="model_failed"),
    "gemini/text.sse": replace(SAID, used=(21, 95, None)),
    "gemini/parallel_calls.sse": replace(CALLED, sealed=1, used=(21, 95, None), end="stop"),
    "gemini/error.json": Outcome(end="model_down"),
}
THEIRS = [*(row.name for row in PROFILES if row.name != "Anthropic"), *OTHERS]  # it has a wire format of its own
NAMES = st.sampled_from(sorted(EXPECTED))


@cache
def body_of(name: str) -> bytes:
    return (FIXTURES / name).read_bytes()


@pytest.mark.parametrize("name", EXPECTED)
def test_each_stream_comes_to_what_it_says(name: str) -> None:
    assert outcome(read([body_of(name)])) == EXPECTED[name]


@pytest.mark.parametrize("name", EXPECTED)
def test_a_byte_at_a_time_comes_to_the_same(name: str) -> None:
    assert outcome(read([bytes([byte]) for byte in body_of(name)])) == EXPECTED[name]


@given(NAMES, st.lists(st.integers(0, 20_000), max_size=20))
def test_any_slicing_comes_to_the_same(name: str, places: list[int]) -> None:
    body = body_of(name)
    cuts = [0, *sorted(place % len(body) for place in places), len(body)]
    parts = [body[start:end] for start, end in pairwise(cuts)]
    assert outcome(read(parts)) == EXPECTED[name]


@given(NAMES, st.lists(st.integers(0, 20_000), max_size=20), st.lists(st.booleans(), min_size=1, max_size=4))
def test_what_is_taken_when_it_is_offered_comes_to_the_same(name: str, places: list[int], turns: list[bool]) -> None:
    body = body_of(name)
    ends = [*accumulate(map(len, body.split(b"\n\n")), lambda end, size: end + len(b"\n\n") + size)]  # of events
    cuts = sorted({0, *(min(end + 2, len(body)) for end in ends), *(place % len(body) for place in places), len(body)})
    parts = [body[start:end] for start, end in pairwise(cuts)]
    assert outcome(read_offered(parts, turns)) == EXPECTED[name]


@given(NAMES, st.sampled_from([b"\r\n", b"\r"]), st.booleans())
def test_other_line_ends_and_comments_change_nothing(name: str, end: bytes, awake: bool) -> None:
    body = body_of(name) if name.endswith(".json") else body_of(name).replace(b"\n", end)
    assert outcome(read([b": ping\n\n" * awake if name.endswith(".sse") else b"", body])) == EXPECTED[name]


@pytest.mark.parametrize("name", [name for name in EXPECTED if name.endswith(".sse")])
def test_a_stream_that_breaks_off_anywhere_has_one_outcome_and_no_call_from_a_half(name: str) -> None:
    body, whole = body_of(name), EXPECTED[name]
    for length in range(0, len(body), at_night(1, 3)):
        seen = outcome(read([body[:length]]))
        assert whole.text.startswith(seen.text) and whole.thought.startswith(seen.thought), length
        if seen.end.startswith("model_"):
            assert not seen.calls, length  # what may be a half is never run
        else:
            assert (seen.calls, seen.bad, seen.end) == (whole.calls, whole.bad, whole.end), length


@pytest.mark.parametrize("server", THEIRS)
def test_each_server_has_the_streams_that_matter(server: str) -> None:
    files = {path.name for path in folder_of(server).iterdir()}
    assert files >= {"text.sse", "parallel_calls.sse", "README.md"}
    assert any("error" in name or "refused" in name or "too_long" in name for name in files)


def test_every_stream_is_expected_and_described() -> None:
    files = [path for server in THEIRS for path in folder_of(server).iterdir() if path.name != "README.md"]
    assert {f"{path.parent.name}/{path.name}" for path in files} == set(EXPECTED)
    undescribed = [path for path in files if f"\n| `{path.name}` | " not in (path.parent / "README.md").read_text()]
    assert not undescribed


def test_neighbouring_text_is_joined_once() -> None:
    """Counted: the characters of all pieces that are made."""
    made = 0

    class Counted(TextChunk, frozen=True):
        def __post_init__(self) -> None:
            nonlocal made
            made += len(self.text)

    [whole] = joined(Counted("word ") for _ in range(1000))
    assert whole == Counted("word " * 1000) and made <= 5 * 5000
