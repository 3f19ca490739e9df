"""Servers that say what their models can do, on a real socket."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from hypothesis import strategies as st

from app.models.http.client import model_client
from app.models.http.served_model import ServedModel
from tests.support.models.chatting import LIMIT_S
from tests.support.models.upstream import Act, Paths, Upstream, answer, upstream

MISSING = answer('{"error":"not found"}', 404)


def said(value: object) -> Act:
    return answer(json.dumps(value))


def models(**entry: object) -> Act:
    return said({"object": "list", "data": [{"id": "other", "max_model_len": 700}, {"id": "m"} | entry]})


SLOT = said({"default_generation_settings": {"n_ctx": 4096, "params": {}}, "total_slots": 2})

CAPS = {"supports_tools": True, "supports_tool_calls": True}
PROPS = {"default_generation_settings": {"n_ctx": 4096}, "modalities": {"vision": False, "audio": False}}
# What each kind of server answers where it is asked, and what is learned from that; the rest stays unknown.
SERVERS: dict[str, tuple[Mapping[str, Act], dict[str, Any]]] = {
    "llama.cpp": (
        {
            "/v1/models": models(meta={"n_ctx_train": 131_072}),
            "/props?model=m": said(PROPS | {"chat_template_caps": CAPS, "total_slots": 4}),
        },
        {"window": 4096, "tools": True, "images": False, "pdf": False, "slots": 4, "counting": "llama.cpp"},
    ),
    "llama.cpp with eyes and a template without tools": (
        {
            "/v1/models": models(architecture={"input_modalities": ["text", "image"]}),
            "/props?model=m": said(PROPS | {"chat_template_caps": {"supports_tools": False}}),
        },
        {"window": 4096, "tools": False, "images": True, "pdf": False, "counting": "llama.cpp"},
    ),
    "llama.cpp, older": (
        {"/v1/models": models(), "/props?model=m": said(PROPS | {"chat_template": "{% if tools %}{{ tools }}"})},
        {"window": 4096, "tools": True, "images": False, "pdf": False, "counting": "llama.cpp"},
    ),
    "vLLM": (
        {"/v1/models": models(owned_by="vllm", max_model_len=8192)},
        {"window": 8192, "counting": "vLLM", "tool_grammar": "vLLM"},
    ),
    "Groq": ({"/v1/models": models(context_window=131_072, max_completion_tokens=32_768)}, {"window": 131_072}),
    "OpenRouter": (
        {
            "/v1/models": models(
                context_length=1_000_000,
                top_provider={"context_length": 65_536},
                supported_parameters=["max_tokens", "tools"],
                architecture={"input_modalities": ["text", "image", "file"]},
            )
        },
        {"window": 65_536, "tools": True, "images": True, "pdf": True},
    ),
    "OpenRouter, of a model that only writes": (
        {
            "/v1/models": models(
                context_length=8192,
                supported_parameters=["max_tokens"],
                architecture={"input_modalities": ["text"]},
            )
        },
        {"window": 8192, "tools": False, "images": False},
    ),
    "Mistral": (
        {"/v1/models": models(max_context_length=32_768, capabilities={"function_calling": True, "vision": False})},
        {"window": 32_768, "tools": True, "images": False},
    ),
    "Moonshot": (
        {"/v1/models": models(context_length=262_144, supports_image_in=True)},
        {"window": 262_144, "images": True},
    ),
    "LM Studio": (
        {
            "/v1/models": models(),
            "/api/v0/models": models(
                type="vlm", capabilities=["tool_use"], max_context_length=131_072, loaded_context_length=4096
            ),
        },
        {"window": 4096, "tools": True, "images": True},
    ),
    "LM Studio, newer, of a model that was not trained for tools": (
        {
            "/v1/models": models(),
            "/api/v1/models": said(
                {
                    "models": [
                        {
                            "key": "m",
                            "type": "llm",
                            "capabilities": {"vision": True, "trained_for_tool_use": False},
                            "loaded_instances": [{"id": "m", "config": {"context_length": 8192}}],
                            "max_context_length": 131_072,
                        }
                    ]
                }
            ),
        },
        {"window": 8192, "images": True},
    ),
    "Ollama": (
        {
            "/v1/models": models(),
            "/api/show": said({"capabilities": ["completion", "tools"], "model_info": {"x.context_length": 131_072}}),
            "/api/ps": said({"models": [{"name": "m", "context_length": 4096}]}),
        },
        {"window": 4096, "tools": True, "images": False},
    ),
    "Ollama, not loaded yet": (
        {
            "/v1/models": models(),
            "/api/show": said({"capabilities": ["completion", "vision"]}),
            "/api/ps": said({"models": []}),
        },
        {"tools": False, "images": True},
    ),
    "one that says nothing": ({"/v1/models": models()}, {}),
    "one with odd values": (
        {
            "/v1/models": models(
                max_model_len="8192", context_length=True, context_window=-1, capabilities="tools", type=["vlm"]
            )
        },
        {},
    ),
    "one with numbers that no window has": (
        {"/v1/models": models(max_model_len=1, context_length=10**40), "/props?model=m": said({"total_slots": 0})},
        {},
    ),
    "one that lists other things": ({"/v1/models": said([1, {"data": None}])}, {}),
    "no JSON": ({"/v1/models": answer("<html>"), "/props?model=m": answer("<html>")}, {}),
}


@asynccontextmanager
async def endpoint(acts: Mapping[str, Act], model: str = "m") -> AsyncGenerator[tuple[ServedModel, Upstream], None]:
    """One that answers each path with its act; the whole test is bounded by it."""
    paths = Paths(acts)
    async with asyncio.timeout(LIMIT_S), upstream(paths, repeat=True) as server:
        paths.server = server
        async with model_client(server.base_url) as client:
            yield ServedModel(client, server.base_url, model, "sk-1"), server


def json_values(*names: str) -> st.SearchStrategy[Any]:
    """Any JSON, with these names in it."""
    leaves = st.none() | st.booleans() | st.integers() | st.just(4096) | st.text(max_size=5) | st.sampled_from(names)
    return st.recursive(
        leaves,
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(names), inner, max_size=4),
    )
