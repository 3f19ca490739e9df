"""Tolerant readers of the fields of a chat completion chunk."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from app.core.provider import Piece, TextChunk, TokenUsage
from app.models.wire.native_calls import index_of, text_of
from parsing import Thought

DECODER = json.JSONDecoder(strict=False)  # shared: json.loads would create one per chunk
MOST_TOKENS = 1_000_000_000
REASONING_FIELDS = ("reasoning_content", "reasoning", "thinking")
# Fields for the tokens read from the cache; the first one present counts.
CACHED = (
    ("usage", "prompt_tokens_details", "cached_tokens"),  # OpenAI, vLLM, llama.cpp, Mistral
    ("usage", "prompt_cache_hit_tokens"),  # DeepSeek
    ("usage", "cached_tokens"),  # Kimi
    ("usage", "num_cached_tokens"),  # Mistral
    ("timings", "cache_n"),  # llama.cpp before it had the first
)
# Fields for the tokens written to the cache, which some providers bill separately.
WRITTEN = (
    ("usage", "prompt_tokens_details", "cache_write_tokens"),  # OpenRouter
    ("usage", "cache_creation_input_tokens"),  # proxies of Anthropic
)
# Fields for an error, as an object or a text.
ERRORS = (
    ("error",),
    ("error_message",),  # DeepInfra, Venice
    ("x_groq", "error"),
)
MAY_BE_ERRORS = frozenset(path[0] for path in ERRORS)  # one set operation: most chunks have none


def reasoning(delta: dict[str, Any]) -> Iterator[Piece]:
    """Yield the reasoning of a delta. Servers that fill several fields repeat the text, so the first counts."""
    if field := reasoning_field(delta):
        yield Thought(delta[field])


def reasoning_field(delta: dict[str, Any]) -> str:
    """Return the field with the reasoning of a delta; "" without one."""
    for field in REASONING_FIELDS:
        if field in delta and text_of(delta[field]):
            return field
    return ""


def content(delta: dict[str, Any]) -> Iterator[Piece]:
    """Yield the text of a delta; some hosts (Mistral) send a list of typed parts instead of a string."""
    value = delta.get("content") or delta.get("refusal")
    for part in value if isinstance(value, list) else [value]:
        match part:
            case str(text) | {"type": "text", "text": str(text)} if text:
                yield TextChunk(text)
            case {"type": "thinking", "thinking": list(inner)}:
                yield from (Thought(one["text"]) for one in inner if isinstance(one, dict) and text_of(one.get("text")))


def fragments(delta: dict[str, Any]) -> list[Any]:
    """Return the call fragments of a delta, the single `function_call` of older servers included."""
    calls = delta.get("tool_calls")
    if isinstance(calls, list):
        return calls
    older = delta.get("function_call")
    return [{"index": 0, "function": older}] if isinstance(older, dict) else []


def usage_of(holder: dict[str, Any]) -> TokenUsage | None:
    usage = holder.get("usage") or ("x_groq" in holder and at(holder["x_groq"], ["usage"]))
    if not isinstance(usage, dict):
        return None
    prompt, completion = (tokens_of(usage.get(field)) for field in ("prompt_tokens", "completion_tokens"))
    if not prompt and not completion:
        return None
    fields = {"usage": usage, "timings": holder.get("timings")}
    return TokenUsage(
        prompt,
        completion + uncounted_reasoning(usage, prompt + completion),
        among(fields, CACHED, prompt),
        among(fields, WRITTEN, prompt),
    )


def uncounted_reasoning(usage: dict[str, Any], counted: int) -> int:
    """Return reasoning tokens that only the total includes (Gemini, xAI); they are billed like the answer."""
    more = tokens_of(usage.get("total_tokens")) - counted
    if more <= 0:
        return 0
    thought = index_of(at(usage, ["completion_tokens_details", "reasoning_tokens"]))
    return more if thought in (None, more) else 0


def merge_usage(before: TokenUsage | None, now: TokenUsage | None) -> TokenUsage | None:
    """Merge repeated usage: the last value counts, except for counts that it omits."""
    if before is None or now is None:
        return now or before
    return TokenUsage(
        now.prompt_tokens or before.prompt_tokens,
        now.completion_tokens or before.completion_tokens,
        before.cached if now.cached is None else now.cached,
        before.cache_written if now.cache_written is None else now.cache_written,
    )


def among(holder: dict[str, Any], paths: Sequence[Sequence[str]], prompt: int) -> int | None:
    """Return the first count found; None without one, or if it exceeds the prompt."""
    for place, field, *inner in paths:
        fields = holder[place]
        if isinstance(fields, dict) and field in fields and (count := index_of(at(fields[field], inner))) is not None:
            return count if 0 <= count <= prompt else None
    return None


def at(holder: Any, path: Sequence[str]) -> Any:
    for field in path:
        if not isinstance(holder, dict):
            return None
        holder = holder.get(field)
    return holder


def tokens_of(value: Any) -> int:
    """Return a plausible count; 0 for anything else."""
    count = index_of(value) or 0
    return count if 0 <= count < MOST_TOKENS else 0


def error_of(chunk: dict[str, Any]) -> Any:
    """Return the error in place of a chunk or beside its choices; None if there is none."""
    for path in () if MAY_BE_ERRORS.isdisjoint(chunk) else ERRORS:
        if error := at(chunk, path):
            return error
    return chunk if chunk.get("object") == "error" else None


def error_in(data: str) -> Any:
    """Return the error object of an `event: error`, or its text."""
    try:
        value = read_json(data)
    except (ValueError, RecursionError):
        return data
    return value.get("error") or value if isinstance(value, dict) else data


def read_json(text: str) -> Any:
    """Decode JSON, with raw control characters allowed in strings. Raises ValueError and RecursionError."""
    return DECODER.decode(text)


def is_json(data: str) -> bool:
    try:
        read_json(data)
    except (ValueError, RecursionError):
        return False
    return True


def all_json(data: str) -> bool:
    return all(is_json(line) or line.strip() in ("", "[DONE]") for line in data.split("\n"))
