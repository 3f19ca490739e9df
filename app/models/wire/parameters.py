"""Request parameters of a model: under the names that its server accepts, without those that it refuses."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Container, Iterator
from typing import Any

from app.core.provider import ProviderNotice
from app.models.capabilities.server_profiles import Limit, Profile
from app.models.http.prompt_too_long import is_too_long
from tools.base.patterns import lazy_pattern

REFUSALS = (400, 422)
OTHER_LIMIT: dict[Limit, Limit] = {
    "max_tokens": "max_completion_tokens",
    "max_completion_tokens": "max_tokens",
}
OPTIONAL = lazy_pattern(rf"\b({'|'.join(OTHER_LIMIT)}|temperature|stream_options)\b")
REASONERS = lazy_pattern(r"(?:^|/)(?:o\d|gpt-5)", re.IGNORECASE)  # OpenAI's, which refuse max_tokens on all hosts
REFUSED_S = 3600.0  # validity of a refusal: the server may change, or only the value was refused
DROPPED = "The model's server refuses {}: requests are sent without it."
READ = 300  # characters of an error text: the request itself may follow
DEEPEST = 6


class Parameters:
    """Parameters of one model. One that the server refuses is left out for a while."""

    def __init__(self, profile: Profile, clock: Callable[[], float] = time.monotonic) -> None:
        self._profile = profile
        self._clock = clock
        self._refused_at: dict[str, float] = {}
        self._notices: list[ProviderNotice] = []

    def fields(self, model: str, max_tokens: int | None, temperature: float | None) -> dict[str, Any]:
        """Return the parameters as fields of a request body."""
        wanted = {
            "stream_options": {"include_usage": True} if self._profile.usage_option else None,
            self._limit(model): max_tokens,
            "temperature": temperature,
        }
        refused = self._refused
        return {name: value for name, value in wanted.items() if value is not None and name not in refused}

    def learn(self, status: int, text: str, sent: Container[str]) -> frozenset[str]:
        """Return the sent fields that this refusal is about, and leave them out from now on."""
        if status not in REFUSALS or is_too_long(text):
            return frozenset()
        refused = frozenset(name for name in named_in(text) if OPTIONAL.fullmatch(name) and name in sent)
        self._refused_at |= dict.fromkeys(refused, self._clock())
        self._notices += [
            ProviderNotice("parameter", DROPPED.format(name)) for name in refused if self._is_dropped(name)
        ]
        return refused

    def take_notices(self) -> list[ProviderNotice]:
        """Return the notices about dropped parameters since the last call."""
        notices, self._notices = self._notices, []
        return notices

    @property
    def _refused(self) -> set[str]:
        return {name for name, at in self._refused_at.items() if self._clock() < at + REFUSED_S}

    def _is_dropped(self, name: str) -> bool:
        """Return whether the refusal has an effect: the limit has two names, and usage can be estimated."""
        return name == "temperature" or (name in OTHER_LIMIT and self._refused >= set(OTHER_LIMIT))

    def _limit(self, model: str) -> Limit:
        first = "max_completion_tokens" if REASONERS.search(model) else self._profile.limit
        return OTHER_LIMIT[first] if first in self._refused else first


def named_in(text: str) -> set[str]:
    """Return the parameters that a refusal names in its fields, or else at the start of its text."""
    body = body_of(text)
    return set(fields_in(body)) or set(OPTIONAL.findall(message_of(body)[:READ]))


def is_about_others(text: str, name: str) -> bool:
    """Return whether the fields of a refusal name only parameters that do not start with `name`."""
    named = set(fields_in(body_of(text)))
    return bool(named) and not any(one.startswith(name) for one in named)


def body_of(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def fields_in(value: Any, depth: int = 0) -> Iterator[str]:
    """Yield `param` of OpenAI's errors, and `loc` of those of FastAPI servers and Mistral."""
    match value:
        case {"param": str(param)} if param:
            yield re.split(r"[.\[]", param)[0]
        case {"loc": ["body", str(name), *_]}:
            yield name
        case dict() | list() if depth < DEEPEST:
            for inner in value.values() if isinstance(value, dict) else value:
                yield from fields_in(inner, depth + 1)


def message_of(body: Any) -> str:
    """Return the message of a refusal."""
    match body:
        case {"error": inner} | {"message": inner} | {"detail": inner} | [inner]:
            return message_of(inner)
        case str(words):
            return words
    return ""
