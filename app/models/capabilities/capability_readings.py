"""Fields in which servers report the abilities of a model: a row for each field."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from typing import Any

from msgspec import Struct

from app.models.capabilities.server_counts import LLAMA_CPP, VLLM
from app.models.http.prompt_too_long import LARGEST, SMALLEST

MOST_SLOTS = 100_000
ENGINES = {"llamacpp": "llama.cpp", "vllm": "vLLM", "sglang": "SGLang"}
MOST_TEMPLATE = 1 << 18  # characters: more than are ever read
TEMPLATE = "template"

Fact = bool | int | str
Field = tuple[str | int, ...]


def number(value: Any) -> int | None:
    """Return a plausible context window."""
    return value if type(value) is int and SMALLEST <= value <= LARGEST else None


def slots(value: Any) -> int | None:
    return value if type(value) is int and 1 <= value <= MOST_SLOTS else None


def flag(value: Any) -> bool | None:
    return value if isinstance(value, bool) else None


def named(name: str, take: Callable[[Any], Fact | None]) -> Callable[[Any], Fact | None]:
    """Return a reader that gives the name if the field has a valid value."""
    return lambda value: None if take(value) is None else name


def fingerprint(value: Any) -> str | None:
    """Return a short fingerprint of a text."""
    return sha256(value.encode("utf-8", "surrogatepass")).hexdigest()[:16] if isinstance(value, str) else None


def template(value: Any) -> str | None:
    """Return the template, cut where it is too long to be read."""
    return value[:MOST_TEMPLATE] if isinstance(value, str) and value else None


def only_yes(value: Any) -> bool | None:
    return True if value is True else None


def filled(value: Any) -> bool | None:
    return True if isinstance(value, str) and value else None


def mentions_tools(value: Any) -> bool | None:
    return "tools" in value if isinstance(value, str) and value else None


def keeps_reasoning(value: Any) -> str | None:
    return "all" if value is True else None


def renders_reasoning(value: Any) -> str | None:
    """Return `turn` for a template that has reasoning of earlier replies in the prompt, else `never`."""
    if not isinstance(value, str) or not value:
        return None
    return "turn" if "reasoning_content" in value or ".thinking" in value else "never"


def none_of_its_kind(value: Any) -> bool | None:
    return False if isinstance(value, dict) else None


def kind_of_model(value: Any) -> bool | None:
    return {"vlm": True, "llm": False}.get(value) if isinstance(value, str) else None


def engine(value: Any) -> str | None:
    """Return the name of a server that enforces grammars, by its own word for itself."""
    return ENGINES.get(value) if isinstance(value, str) else None


def lists(*words: str, whole: bool = True) -> Callable[[Any], bool | None]:
    """Return a reader that finds one of the words in a list; `whole`: such a list is complete."""

    def read(value: Any) -> bool | None:
        if not isinstance(value, list):
            return None
        return any(word in value for word in words) or (False if whole else None)

    return read


class Reading(Struct, frozen=True):
    """A row: `take` reads the fact from a field; None if the value is not valid."""

    ability: str
    field: Field
    take: Callable[[Any], Fact | None]


# The first row with a value for an ability counts. `n_ctx_train` is missing on purpose: the server's own window may be
# smaller than that of the training.
OF_ENTRY: tuple[Reading, ...] = (
    Reading("window", ("max_model_len",), number),  # vLLM, SGLang
    Reading("window", ("loaded_context_length",), number),  # LM Studio
    Reading("window", ("loaded_instances", 0, "config", "context_length"), number),  # LM Studio, newer
    Reading("window", ("top_provider", "context_length"), number),  # OpenRouter: of the host that it sends to first
    Reading("window", ("context_window",), number),  # Groq
    Reading("window", ("context_length",), number),  # OpenRouter, Together, Moonshot, Ollama
    Reading("window", ("max_context_length",), number),  # Mistral, LM Studio
    Reading("window", ("max_input_tokens",), number),  # Anthropic
    Reading("answer", ("max_tokens",), number),  # Anthropic: of one answer
    Reading("counting", ("max_model_len",), named(VLLM.name, number)),
    Reading("tool_grammar", ("owned_by",), engine),
    Reading("tools", ("supported_parameters",), lists("tools")),  # OpenRouter
    Reading("tools", ("capabilities", "function_calling"), flag),  # Mistral
    # LM Studio offers tools to other models, too, in its own prompt format.
    Reading("tools", ("capabilities", "trained_for_tool_use"), only_yes),
    Reading("tools", ("capabilities",), lists("tool_use", whole=False)),
    Reading("images", ("architecture", "input_modalities"), lists("image")),  # OpenRouter, llama.cpp
    Reading("images", ("capabilities", "vision"), flag),  # Mistral, LM Studio
    Reading("images", ("supports_image_in",), flag),  # Moonshot
    Reading("images", ("capabilities", "image_input", "supported"), flag),  # Anthropic
    Reading("images", ("type",), kind_of_model),  # LM Studio
    # OpenRouter converts it for others.
    Reading("pdf", ("architecture", "input_modalities"), lists("file", whole=False)),
    Reading("pdf", ("capabilities", "pdf_input", "supported"), flag),  # Anthropic
)
OF_PROPERTIES: tuple[Reading, ...] = (  # llama.cpp
    Reading("window", ("default_generation_settings", "n_ctx"), number),  # of one slot
    Reading("tools", ("chat_template_caps", "supports_tools"), flag),
    Reading("tools", ("chat_template_tool_use",), filled),
    Reading("tools", ("chat_template",), mentions_tools),
    Reading("images", ("modalities", "vision"), flag),
    Reading("pdf", ("modalities",), none_of_its_kind),
    Reading("slots", ("total_slots",), slots),
    Reading("counting", ("default_generation_settings", "n_ctx"), named(LLAMA_CPP.name, number)),
    Reading("replay", ("chat_template_caps", "supports_preserve_reasoning"), keeps_reasoning),
    Reading("replay", ("chat_template",), renders_reasoning),
    # These also reveal that the server has changed its model, the last one does nothing else.
    Reading(TEMPLATE, ("chat_template_tool_use",), template),
    Reading(TEMPLATE, ("chat_template",), template),
    Reading("weights", ("model_path",), fingerprint),
)
OF_DETAILS: tuple[Reading, ...] = (  # Ollama
    Reading("tools", ("capabilities",), lists("tools")),
    Reading("images", ("capabilities",), lists("vision")),
)


def read(rows: Sequence[Reading], value: Any) -> Mapping[str, Fact]:
    facts = [(row.ability, row.take(at(value, row.field))) for row in reversed(rows)]
    return {ability: fact for ability, fact in facts if fact is not None}


def at(value: Any, field: Field) -> Any:
    for name in field:
        match value, name:
            case dict(), str():
                value = value.get(name)
            case [*entries], int() if entries:
                value = entries[name]
            case _:
                return None
    return value


def entry_of(answer: Any, model: str) -> Any:
    """Return the model's entry in a list of models."""
    match answer:
        case {"data": list(entries)} | {"models": list(entries)}:
            named = (one for one in entries if isinstance(one, dict) and model in map(one.get, ("id", "name", "key")))
            return next(named, None)
    return None
