"""What names suggest: models that people run, and that no row is without use."""

from __future__ import annotations

import re

import pytest

from app.core.provider import CallForm
from app.models.capabilities.name_hints import NAME_HINTS, hints_for

# name -> tools, images, PDFs; `-` is not suggested.
MODELS = {
    "gpt-4o-mini": "yes yes yes",
    "openai/gpt-5": "yes yes yes",
    "o4-mini": "yes yes yes",
    "o1-mini": "no no no",
    "o3-mini": "yes no -",
    "gpt-4-turbo": "yes yes -",
    "gpt-4-0613": "yes - -",
    "gpt-3.5-turbo": "yes no -",
    "gpt-oss:20b": "yes no -",
    "claude-2.1": "no no no",
    "anthropic/claude-sonnet-4.5": "yes yes yes",
    "gemini-2.5-pro": "yes yes -",
    "Qwen/Qwen3-30B-A3B-Instruct-2507": "yes - -",
    "qwen2.5-vl-7b-instruct": "yes yes -",
    "deepseek-chat": "yes - -",
    "deepseek-r1-distill-qwen-7b": "no - -",
    "google/gemma-7b-it": "no no -",
    "gemma-2-9b-it": "no no -",
    "gemma3:4b": "no - -",
    "gemma-3-270m": "no no -",
    "gemma-3-1b-it": "no no -",
    "gemma4:12b": "yes - -",
    "functiongemma": "yes no -",
    "SmolLM2-135M-Instruct": "no - -",
    "smollm3": "yes - -",
    "phi3:mini": "no - -",
    "phi-4": "yes - -",
    "falcon-7b": "no - -",
    "llava:13b": "no yes -",
    "moondream": "no yes -",
    "llama3.1:8b": "yes - -",
    "meta-llama/Llama-3.2-11B-Vision-Instruct": "yes yes -",
    "Llama-4-Scout": "yes yes -",
    "Meta-Llama-3-8B": "- - -",
    "tinyllama": "no - -",
    "mistral-small-3.2": "yes yes -",
    "mixtral-8x7b": "yes - -",
    "kimi-k2-instruct": "yes - -",
    "glm-4.5v": "yes yes -",
    "grok-4": "yes yes -",
    "command-r-plus": "yes - -",
    "some-vl-model": "- yes -",
    "nomic-embed-text": "no no no",
    "granite-4": "yes - -",
    "database-expert": "- - -",
    "auto": "- - -",
}
FENCED = {"SmolLM2-135M-Instruct", "gemma-3-270m"}
WORDS: dict[object, str] = {True: "yes", False: "no", None: "-"}


@pytest.mark.parametrize("model", MODELS)
def test_a_name_suggests_what_the_model_can(model: str) -> None:
    said = hints_for(model)
    assert " ".join(WORDS[said.get(name)] for name in ("tools", "images", "pdf")) == MODELS[model]


def test_a_name_suggests_which_form_of_calls_is_taught() -> None:
    assert {model for model in MODELS if hints_for(model).get("call_form") is CallForm.FENCED} == FENCED


@pytest.mark.parametrize("pattern", [row.pattern for row in NAME_HINTS])
def test_every_row_knows_a_model(pattern: str) -> None:
    assert any(re.search(pattern, model, re.IGNORECASE) for model in MODELS)
