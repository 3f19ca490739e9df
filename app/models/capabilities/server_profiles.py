"""Profiles of common servers, a row each: how to recognise them, and how requests differ.

What is odd in their streams stands beside each, in `fixtures/providers`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Literal
from urllib.parse import urlsplit

from msgspec import Struct

from app.models.http.client import is_local

Limit = Literal["max_tokens", "max_completion_tokens"]


class PrefixForm(Struct, frozen=True):
    """The form in which a server is asked to go on with the last message of a request, which is the model's own.

    `message` and `body` are the fields that say so, and `path` that of the API which takes them. `repeats`: the answer
    begins with the message. `bare_end`: a message that ends with white space is refused.
    """

    message: Mapping[str, bool] = {}
    body: Mapping[str, bool] = {}
    path: str = ""
    repeats: bool = False
    bare_end: bool = False


class Profile(Struct, frozen=True):
    """A server, recognised by its host, or by its default port on a local address.

    `limit` is its parameter for the token limit; `usage_option` is false for servers that reject `stream_options`.
    `leaves_calls`: calls that the server's own parser misses stay in the text as the model wrote them (https://github.com/ggml-org/llama.cpp/issues/12256,
    https://github.com/vllm-project/vllm/issues/47907). `any_order`: it takes several messages of a role in a row, and
    system messages anywhere; templates of other models refuse these (https://github.com/ggml-org/llama.cpp/issues/20733).
    `prefix`: it can go on with a message (https://github.com/ggml-org/llama.cpp/pull/13174,
    https://github.com/vllm-project/vllm/issues/6772, https://github.com/sgl-project/sglang/issues/3971,
    https://api-docs.deepseek.com/guides/chat_prefix_completion,
    https://platform.kimi.ai/docs/guide/use-partial-mode-feature-of-kimi-api); Anthropic's models before Claude 4.6 can
    (https://platform.claude.com/docs/en/about-claude/models/whats-new-claude-4-6#prefill-removal).
    `hides_tools`: with `tool_choice` none its prompts lack the tools, and so begin otherwise than those before.
    """

    name: str
    hosts: tuple[str, ...] = ()
    port: int | None = None
    limit: Limit = "max_tokens"
    usage_option: bool = True
    leaves_calls: bool = False
    any_order: bool = False
    prefix: PrefixForm | None = None
    hides_tools: bool = False

    @property
    def base_url(self) -> str:
        """The URL of a server on its default port."""
        return f"http://127.0.0.1:{self.port}/v1"


PROFILES: tuple[Profile, ...] = (
    Profile("llama.cpp", port=8080, leaves_calls=True, prefix=PrefixForm()),
    Profile(
        "vLLM",
        port=8000,
        leaves_calls=True,
        prefix=PrefixForm(body={"continue_final_message": True, "add_generation_prompt": False}),
    ),
    Profile(
        "SGLang",
        port=30000,
        leaves_calls=True,
        hides_tools=True,
        prefix=PrefixForm(body={"continue_final_message": True}),
    ),
    Profile("LM Studio", port=1234, leaves_calls=True),
    Profile("Ollama", port=11434, leaves_calls=True),
    Profile("OpenAI", hosts=("api.openai.com",), limit="max_completion_tokens", any_order=True),
    Profile("OpenRouter", hosts=("openrouter.ai",)),
    Profile("DeepSeek", hosts=("api.deepseek.com",), prefix=PrefixForm({"prefix": True}, path="/beta")),
    Profile("Moonshot", hosts=("api.moonshot.ai", "api.moonshot.cn"), prefix=PrefixForm({"partial": True})),
    Profile(
        "Mistral", hosts=("api.mistral.ai",), usage_option=False, prefix=PrefixForm({"prefix": True}, repeats=True)
    ),
    Profile("Groq", hosts=("api.groq.com",)),
    Profile("Gemini", hosts=("generativelanguage.googleapis.com",)),
    Profile("Anthropic", hosts=("api.anthropic.com",), prefix=PrefixForm(bare_end=True)),
)
OTHERS = Profile("another server")
BY_NAME = {row.name: row for row in PROFILES}


@lru_cache(256)
def profile_of(base_url: str) -> Profile:
    """Return the profile of the server at this URL."""
    parts = urlsplit(base_url)
    host, port = parts.hostname or "", parts.port if is_local(base_url) else None
    return next((row for row in PROFILES if host in row.hosts or (port and row.port == port)), OTHERS)
