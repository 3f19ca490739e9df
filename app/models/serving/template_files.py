"""The templates of a model in a file: a GGUF file, a tokenizer_config.json, or a chat template on its own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from msgspec import Struct

from app.models.serving.gguf import open_model, read_templates
from app.models.serving.refusals import UnfitFile

MOST_BYTES = 64 << 20  # a tokenizer_config.json may list 100,000 tokens
TOOL_USE = "tool_use"  # the name of the template for conversations with tools, where there are several


class ModelTemplates(Struct, frozen=True):
    """A chat template, and a response template as JSON; "" where there is none."""

    chat: str = ""
    response: str = ""


def templates_in(path: Path) -> ModelTemplates:
    """Read the file. Raises UnfitFile."""
    if path.suffix == ".gguf":
        named = read_templates(path)
        return _checked(path, ModelTemplates(named.get(TOOL_USE, named.get("", ""))))
    with open_model(path) as file:
        content = file.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise UnfitFile(
            f"{path} has more than {MOST_BYTES >> 20} MB. Name a template, tokenizer_config.json or a GGUF file."
        )
    text = content.decode("utf-8", "replace")
    if path.suffix != ".json":
        return ModelTemplates(text)
    try:
        config = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UnfitFile(f"{path} is no JSON: {error}. Name the model's tokenizer_config.json.") from None
    return _checked(path, _in_config(config))


def _in_config(config: Any) -> ModelTemplates:
    match config:
        case {"fields": dict()}:  # a response template on its own
            return ModelTemplates(response=json.dumps(config))
        case dict():
            response = config.get("response_template")
            chat = _chosen(config.get("chat_template"))
            return ModelTemplates(chat, json.dumps(response) if isinstance(response, dict) else "")
    return ModelTemplates()


def _chosen(template: Any) -> str:
    """The template, of several the one for tools."""
    if isinstance(template, list):
        named = {str(each.get("name")): each.get("template") for each in template if isinstance(each, dict)}
        template = named.get(TOOL_USE, named.get("default"))
    return template if isinstance(template, str) else ""


def _checked(path: Path, found: ModelTemplates) -> ModelTemplates:
    if not found.chat and not found.response:
        raise UnfitFile(f"{path} has neither a chat_template nor a response_template. Name a file that has one.")
    return found
