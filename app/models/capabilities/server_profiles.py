"""Profiles of common servers, a row each: how to recognise them, request parameters, and documented quirks."""

from __future__ import annotations

from functools import lru_cache
from typing import Literal
from urllib.parse import urlsplit

from msgspec import Struct

from app.models.http.client import is_local

Limit = Literal["max_tokens", "max_completion_tokens"]


class Quirk(Struct, frozen=True):
    """A deviation of the server, in one sentence, and the recorded stream that shows it."""

    odd: str
    stream: str


class Profile(Struct, frozen=True):
    """A server, recognised by its host, or by its default port on a local address.

    `limit` is its parameter for the token limit; `usage_option` is false for servers that reject `stream_options`.
    `leaves_calls`: calls that the server's own parser misses stay in the text as the model wrote them (https://github.com/ggml-org/llama.cpp/issues/12256,
    https://github.com/vllm-project/vllm/issues/47907). `any_order`: it takes several messages of a role in a row, and
    system messages anywhere; templates of other models refuse these (https://github.com/ggml-org/llama.cpp/issues/20733).
    """

    name: str
    hosts: tuple[str, ...] = ()
    port: int | None = None
    limit: Limit = "max_tokens"
    usage_option: bool = True
    leaves_calls: bool = False
    any_order: bool = False
    quirks: tuple[Quirk, ...] = ()

    @property
    def folder(self) -> str:
        """Name of the folder of its recorded streams, below fixtures/providers."""
        return self.name.lower().replace(".", "_").replace(" ", "_")


PROFILES: tuple[Profile, ...] = (
    Profile(
        "llama.cpp",
        port=8080,
        leaves_calls=True,
        quirks=(
            Quirk("Usage comes last, on a chunk without choices, and timings beside it.", "text.sse"),
            Quirk("Arguments come token by token, one call after the other.", "parallel_calls.sse"),
            Quirk(
                "A prompt that is too long is refused with the limit as a number (`n_ctx`).", "context_too_long.json"
            ),
        ),
    ),
    Profile(
        "vLLM",
        port=8000,
        leaves_calls=True,
        quirks=(
            Quirk("Thoughts come as `reasoning`, in older versions as `reasoning_content`.", "reasoning.sse"),
            Quirk(
                "With `--reasoning-parser`, all that a model writes that does not think comes as `reasoning`.",
                "whole_reasoning.sse",
            ),
            Quirk("[DONE] follows an error, too.", "error_in_stream.sse"),
            Quirk("A refused field is named with `body.` in front.", "refused_effort.json"),
        ),
    ),
    Profile(
        "SGLang",
        port=30000,
        leaves_calls=True,
        quirks=(
            Quirk("Every field that a delta could have is there, most of them null.", "reasoning.sse"),
            Quirk("Status 200, and the refusal of a prompt that is too long in the stream.", "context_too_long.sse"),
            Quirk("An answer that the server has given up ends with finish_reason `abort`.", "aborted.sse"),
        ),
    ),
    Profile(
        "LM Studio",
        port=1234,
        leaves_calls=True,
        quirks=(
            Quirk("Every further fragment of a call has an empty name.", "parallel_calls.sse"),
            Quirk("An error says everything twice, and nothing follows it.", "error_in_stream.sse"),
        ),
    ),
    Profile(
        "Ollama",
        port=11434,
        leaves_calls=True,
        quirks=(
            Quirk("Each call comes whole, and in older versions all have index 0.", "parallel_calls.sse"),
            Quirk(
                "An error stands in a line of its own, without `data:`, and nothing follows it.", "error_in_stream.sse"
            ),
        ),
    ),
    Profile(
        "OpenAI",
        hosts=("api.openai.com",),
        limit="max_completion_tokens",
        any_order=True,
        quirks=(
            Quirk(
                "Chunks are padded to hide their length (`obfuscation`), and all but the last have usage null.",
                "text.sse",
            ),
            Quirk(
                "Models that think refuse `max_tokens` and a temperature, and name them in `param`.",
                "refused_limit.json",
            ),
        ),
    ),
    Profile(
        "OpenRouter",
        hosts=("openrouter.ai",),
        quirks=(
            Quirk("Comments keep the connection awake while a host is looked for.", "text.sse"),
            Quirk("Thoughts come twice, as text and as signed details, which it wants back.", "reasoning.sse"),
            Quirk("An error shares its chunk with choices whose finish_reason is `error`.", "error_in_stream.sse"),
            Quirk("An error may follow the finish_reason, with the usage.", "error_after_reason.sse"),
        ),
    ),
    Profile(
        "DeepSeek",
        hosts=("api.deepseek.com",),
        quirks=(
            Quirk(
                "Thoughts come with content null, and go back with the calls that they led to.",
                "reasoning_and_call.sse",
            ),
            Quirk("What was found in the cache is named twice, in words of its own as well.", "reasoning_and_call.sse"),
            Quirk("A busy server gives up with finish_reason `insufficient_system_resource`.", "given_up.sse"),
        ),
    ),
    Profile(
        "Moonshot",
        hosts=("api.moonshot.ai", "api.moonshot.cn"),
        quirks=(
            Quirk("Usage is in the last choice, and again on a chunk without choices.", "text.sse"),
            Quirk(
                "Ids are made of the tool's name and the call's place, so they return in every reply.",
                "parallel_calls.sse",
            ),
        ),
    ),
    Profile(
        "Mistral",
        hosts=("api.mistral.ai",),
        usage_option=False,
        quirks=(
            Quirk("Content is a list of typed parts as soon as the model thinks.", "reasoning.sse"),
            Quirk("Calls come whole, with the finish_reason; ids are nine letters and digits.", "parallel_calls.sse"),
            Quirk("The token limit is called `model_length`.", "limited.sse"),
            Quirk("Usage comes unasked: the question for it is refused, in nested `loc`s.", "refused_usage.json"),
        ),
    ),
    Profile(
        "Groq",
        hosts=("api.groq.com",),
        quirks=(
            Quirk("Usage comes twice, within `x_groq` as well.", "text.sse"),
            Quirk("A call that the server cannot read fails the answer (`tool_use_failed`).", "error_in_stream.sse"),
        ),
    ),
    Profile(
        "Gemini",
        hosts=("generativelanguage.googleapis.com",),
        quirks=(
            Quirk("Calls have no index, and their finish_reason is `stop`.", "parallel_calls.sse"),
            Quirk("The first call is signed, and refused later without its signature.", "parallel_calls.sse"),
            Quirk("Errors are in a list.", "error.json"),
        ),
    ),
    Profile(
        "Anthropic",
        hosts=("api.anthropic.com",),
        quirks=(
            Quirk("What was read from the cache, and what was kept there, is not in `input_tokens`.", "cached.sse"),
            Quirk("Thoughts without words, which newer models send: only their signature.", "thinking_omitted.sse"),
            Quirk("Pings come in between; `message_delta` repeats all counts.", "text.sse"),
        ),
    ),
)
OTHERS = Profile("another server")


@lru_cache(256)
def profile_of(base_url: str) -> Profile:
    """Return the profile of the server at this URL."""
    parts = urlsplit(base_url)
    host, port = parts.hostname or "", parts.port if is_local(base_url) else None
    return next((row for row in PROFILES if host in row.hosts or (port and row.port == port)), OTHERS)
