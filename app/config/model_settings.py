"""Settings of models: their endpoints, aliases, fallbacks and prices."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, field_validator

from app.config.sources import Given, absolute
from app.core.endpoint_spec import EndpointSpec, Price, checked_endpoint_name
from app.core.settings_fields import number, setting, whole, words

DEFAULT = "default"  # the endpoint of model_url


class ModelSettings(BaseModel, defer_build=True):
    """Models, their endpoints and prices."""

    endpoints: Mapping[str, EndpointSpec] = setting(
        {},
        "model servers by name",
        'tables by names without a slash, such as {url = "http://127.0.0.1:8080/v1", key_env = ["KEY"]}',
    )
    aliases: Mapping[str, str] = setting({}, "other names of models", 'a table such as {fast = "local/qwen"}')
    fallback: tuple[str, ...] = words(
        (), "models that answer, in this order, when the requested one cannot", "models such as local/qwen"
    )
    fallbacks: Mapping[str, tuple[str, ...]] = setting(
        {},
        "models that answer in place of those of fallback, by the requested model",
        'a table such as {"hosted/*" = ["other/big", "local/qwen"]}',
    )
    utility: str | None = setting(
        None,
        "model for summaries, judges and doubtful ends of replies (default: the run's own; none judges ends)",
        "a model such as local/qwen",
    )
    prices: Mapping[str, Price] = setting(
        {},
        "prices of a million tokens by model, in any currency",
        'tables such as {"hosted/*" = {input = 2.5, output = 10}}, with cached and cache_written where they differ',
    )
    cost_per_month: float = number(
        0.0, 0, 10**6, "model cost of one principal in a month (UTC), in the currency of prices; 0 for no limit"
    )
    transport: Literal["lean", "httpx2"] = setting(
        "lean",
        "HTTP transport to model servers; with an HTTP proxy in the environment it is always httpx2",
        "lean or httpx2",
    )
    max_answer_characters: int = whole(
        4 << 20,
        1000,
        1 << 24,
        "characters of one answer: text, reasoning and calls together",
    )
    max_attachment_bytes: int = whole(20 << 20, 1024, 1 << 28, "bytes of all files in one message")
    max_attachments: int = whole(20, 0, 1000, "files in one message")

    @field_validator("endpoints")
    @classmethod
    def _named(cls, value: Mapping[str, EndpointSpec]) -> Mapping[str, EndpointSpec]:
        for name in value:
            checked_endpoint_name(name)
        return value


def rooted(endpoints: Mapping[str, EndpointSpec], given: Given | None, home: Path | None) -> dict[str, EndpointSpec]:
    """The endpoints with absolute paths of key files; relative ones are relative to the source of the setting."""
    folder, origin = (given.folder, given.origin) if given else (Path(), "")
    return {
        name: spec.model_copy(
            update={"key_file": tuple(str(absolute(Given(one, origin, folder), home)) for one in spec.key_file)}
        )
        for name, spec in endpoints.items()
    }


def model_problems(settings: ModelSettings, model_url: str | None) -> Iterator[str]:
    """Contradictions between these settings, a sentence each."""
    if model_url and DEFAULT in settings.endpoints:
        yield f"model_url is the endpoint {DEFAULT}: rename the one in endpoints, or remove model_url."
    for alias in settings.aliases:
        if (cycle := cycle_from(alias, settings.aliases)) and alias == min(cycle):  # reported once
            yield f"aliases form a cycle: {' -> '.join(cycle)}. Let one of them name a model."


def key_files(endpoints: Mapping[str, EndpointSpec]) -> dict[str, Path]:
    """The key files by a description for error messages."""
    return {
        f"The key_file of {name}" + (f", number {number}" if number > 1 else ""): Path(file)
        for name, spec in endpoints.items()
        for number, file in enumerate(spec.key_file, 1)
    }


def cycle_from(alias: str, aliases: Mapping[str, str]) -> list[str]:
    """The cycle of aliases that contains this one; empty if there is none."""
    seen = [alias]
    while (following := aliases.get(seen[-1])) is not None:
        if following in seen:
            return [*seen, following] if following == alias else []
        seen.append(following)
    return []
