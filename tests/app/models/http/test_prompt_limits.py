"""A prompt that is too long: whether a refusal is about that, and which of its numbers is the limit."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.models.http.failures import bad_status, error_in_stream
from app.models.http.prompt_too_long import LIMITS, is_too_long, limit_in
from tests.support.models.answers import FIXTURES

URL = "http://model/v1/chat/completions"
# As servers have worded it; the limit beside each is what a person reads there.
WORDINGS = {
    "llama.cpp": (
        '{"error":{"code":400,"message":"request (9031 tokens) exceeds the available context size (8192 tokens), try '
        'increasing it","type":"exceed_context_size_error","n_prompt_tokens":9031,"n_ctx":8192}}',
        8192,
    ),
    "llama.cpp, before": (
        '{"error":{"code":400,"message":"the request exceeds the available context size. try increasing the context '
        'size or enable context shift","type":"exceed_context_size_error","n_prompt_tokens":5120,"n_ctx":4096}}',
        4096,
    ),
    "OpenAI": (
        "This model's maximum context length is 8192 tokens. However, your messages resulted in 8227 tokens. Please "
        "reduce the length of the messages.",
        8192,
    ),
    "OpenAI, of inputs": (
        "Input tokens exceed the configured limit of 272000 tokens. Your messages resulted in 509178 tokens. Please "
        "reduce the length of the messages.",
        272_000,
    ),
    "vLLM": (
        "This model's maximum context length is 16384 tokens. However, you requested 122946 tokens (112946 in the "
        "messages, 10000 in the completion). Please reduce the length of the messages or completion.",
        16_384,
    ),
    "vLLM, since 0.16": (
        "You passed 1015 input tokens and requested 10 output tokens. However, the model's context length is only 1024 "
        "tokens, resulting in a maximum input length of 1014 tokens. Please reduce the length of the input prompt. "
        "(parameter=input_tokens, value=1015)",
        1024,
    ),
    "vLLM, since 0.32": ((FIXTURES / "vllm/context_too_long.json").read_text(), 8192),
    "LiteLLM": ((FIXTURES / "litellm/context_too_long.json").read_text(), 8192),
    "OpenRouter": (
        "This endpoint's maximum context length is 131072 tokens. However, you requested about 140012 tokens (131820 "
        "of text input, 8192 in the output). Please reduce the length of either one.",
        131_072,
    ),
    "SGLang": ("The input (131123 tokens) is longer than the model's context length (131072 tokens).", 131_072),
    "SGLang, in all": (
        "Requested token count exceeds the model's maximum context length of 64000 tokens. You requested a total of "
        "71897 tokens: 7897 tokens from the input messages and 64000 tokens for the completion.",
        64_000,
    ),
    "Anthropic": ("prompt is too long: 213462 tokens > 200000 maximum", 200_000),
    "Anthropic, with the answer": (
        "input length and `max_tokens` exceed context limit: 197202 + 21333 > 200000, decrease input length",
        200_000,
    ),
    "Gemini": ("The input token count (2845475) exceeds the maximum number of tokens allowed (1048576).", 1_048_576),
    "xAI": ("This model's maximum prompt length is 131072 but the request contains 537812 tokens.", 131_072),
    "Mistral": (
        "Prompt contains 300000 tokens and 0 draft tokens, too large for model with 131072 maximum context length",
        131_072,
    ),
    "Kimi": ("Invalid request: Your request exceeded model token limit: 262144 (requested: 291351)", 262_144),
    "Copilot": ("prompt token count of 184573 exceeds the limit of 128000", 128_000),
    "DashScope": ("InternalError.Algo.InvalidParameter: Range of input length should be [1, 202745]", 202_745),
    "TGI": (
        "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096. Given: 5000 `inputs` tokens and "
        "512 `max_new_tokens`",
        4096,
    ),
    "TGI, of inputs": ("Input validation error: `inputs` must have less than 2048 tokens. Given: 3012", 2048),
    "Cohere": (
        "too many tokens: total number of tokens in the prompt cannot exceed 4081 - received 4292. Try using a shorter "
        "prompt.",
        4081,
    ),
    "Qwen": ("Input length 131393 exceeds the maximum allowed input length of 131040 tokens.", 131_040),
    "LM Studio": (
        "Trying to keep the first 5406 tokens when context the overflows. However, the model is loaded with context "
        "length of only 4096 tokens, which is not enough.",
        4096,
    ),
    "with commas": ("Prompt has 300,000 tokens, but the configured context size is 131,072 tokens", 131_072),
    "GitHub": ("Request body too large for gpt-4o model. Max size: 8000 tokens.", 8000),
    "Groq": ("Please reduce the length of the messages or completion.", None),
    "Z.ai": ('{"error":{"code":"1261","message":"Prompt exceeds max length"}}', None),
    "MiniMax, whose number is a code": ("invalid params, context window exceeds limit (2013)", None),
    "a size that none has": ("maximum context length is 7 tokens", None),
}
OTHERS = (
    "max_tokens is too large: 100000. This model supports at most 16384 completion tokens.",
    "Rate limit reached for requests. Limit 20, used 20.",
    "Invalid schema for function 'bash': 8192 is not of type 'string'",
    "model 'qwen3:8192' not found",
)


@pytest.mark.parametrize("server", WORDINGS)
def test_the_limit_is_read_and_not_the_prompt_s_own_length(server: str) -> None:
    said, limit = WORDINGS[server]
    failure = bad_status(URL, 400, said)
    assert (failure.code, failure.window) == ("model_context", limit)


@pytest.mark.parametrize("said", OTHERS)
def test_other_complaints_are_not_taken_for_it(said: str) -> None:
    failure = bad_status(URL, 400, said)
    assert (failure.code, failure.window) == ("model_rejected", None)


def test_each_row_is_needed_by_a_wording() -> None:
    assert {next((row for row in LIMITS if row.search(said)), None) for said, _ in WORDINGS.values()} >= set(LIMITS)


def test_a_limit_in_the_stream_is_read_too() -> None:
    assert (
        error_in_stream(URL, {"code": 400, "message": "the request exceeds the context size", "n_ctx": 4096}).window
        == 4096
    )
    assert error_in_stream(URL, WORDINGS["vLLM"][0]).window == 16_384
    assert error_in_stream(URL, {"code": 429, "message": "Limit 6000 tokens"}).window is None


def test_words_of_the_conversation_behind_the_complaint_are_not_read() -> None:
    said = json.dumps({"detail": "context length exceeded" + " " * 2000, "input": WORDINGS["OpenAI"][0]})
    assert is_too_long(said) and limit_in(said) is None


@given(st.text() | st.from_regex(r"(context (length|size) (is|of) [\d,]{0,40} tokens ?)+"))
def test_whatever_is_said_a_limit_is_sensible_or_none(said: str) -> None:
    limit = limit_in(said)
    assert limit is None or 256 <= limit <= 10**8


JSON = st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(), lambda one: st.lists(one))
FIELDS = st.dictionaries(st.sampled_from(("message", "code", "status", "type", "n_ctx", "status_code", "error")), JSON)


@given(JSON | FIELDS)
def test_any_error_in_a_stream_is_a_failure_of_the_model(error: object) -> None:
    """Also one whose code is a list."""
    assert error_in_stream(URL, error).code
