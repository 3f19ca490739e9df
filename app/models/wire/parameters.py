"""What a model is asked besides messages and tools, under the names that its server takes, without what it refuses."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Container, Iterator
from typing import Any

from app.core.provider import ProviderNotice
from app.models.capabilities.server_profiles import Limit, Profile
from app.models.http.prompt_too_long import is_too_long

REFUSALS = (400, 422)
OTHER_LIMIT: dict[Limit, Limit] = {
    "max_tokens": "max_completion_tokens",
    "max_completion_tokens": "max_tokens",
}
OPTIONAL = re.compile(rf"\b({'|'.join(OTHER_LIMIT)}|temperature|stream_options)\b")
REASONERS = re.compile(r"(?:^|/)(?:o\d|gpt-5)", re.IGNORECASE)  # OpenAI's, which refuse max_tokens on all hosts
REFUSED_S = 3600.0  # so long holds a refusal: the server may be another one by then, or the value was the reason
LOST = "The model's server refuses {}: it is asked without."
READ = 300  # characters of a complaint: behind its first words may be the request itself
DEEPEST = 6


class Parameters:
    """Those of one model. A server that refuses one of them is asked again without it, and for a while from then on."""

    def __init__(self, profile: Profile, clock: Callable[[], float] = time.monotonic) -> None:
        self._profile = profile
        self._clock = clock
        self._refused_at: dict[str, float] = {}
        self._news: list[ProviderNotice] = []

    def fields(self, model: str, max_tokens: int | None, temperature: float | None) -> dict[str, Any]:
        """As fields of a request's body."""
        wanted = {
            "stream_options": {"include_usage": True} if self._profile.usage_option else None,
            self._limit(model): max_tokens,
            "temperature": temperature,
        }
        refused = self._refused
        return {name: value for name, value in wanted.items() if value is not None and name not in refused}

    def learn(self, status: int, said: str, sent: Container[str]) -> frozenset[str]:
        """Which of the fields that were sent this refusal is about; they will not be sent again soon."""
        if status not in REFUSALS or is_too_long(said):
            return frozenset()
        refused = frozenset(name for name in named_in(said) if OPTIONAL.fullmatch(name) and name in sent)
        self._refused_at |= dict.fromkeys(refused, self._clock())
        self._news += [ProviderNotice("parameter", LOST.format(name)) for name in refused if self._is_lost(name)]
        return refused

    def news(self) -> list[ProviderNotice]:
        """What has been lost since this was last asked, for whoever asks first."""
        news, self._news = self._news, []
        return news

    @property
    def _refused(self) -> set[str]:
        return {name for name, at in self._refused_at.items() if self._clock() < at + REFUSED_S}

    def _is_lost(self, name: str) -> bool:
        """Whether somebody misses it: one name of the limit stands in for the other, and usage can be estimated."""
        return name == "temperature" or (name in OTHER_LIMIT and self._refused >= set(OTHER_LIMIT))

    def _limit(self, model: str) -> Limit:
        first = "max_completion_tokens" if REASONERS.search(model) else self._profile.limit
        return OTHER_LIMIT[first] if first in self._refused else first


def named_in(said: str) -> set[str]:
    """The parameters that a refusal is about: as its fields say, or else as its first words do."""
    body = body_of(said)
    return set(fields_in(body)) or set(OPTIONAL.findall(words_of(body)[:READ]))


def is_about_others(said: str, name: str) -> bool:
    """Whether the fields of a refusal say that it is about parameters whose names begin otherwise."""
    named = set(fields_in(body_of(said)))
    return bool(named) and not any(one.startswith(name) for one in named)


def body_of(said: str) -> Any:
    try:
        return json.loads(said)
    except (ValueError, RecursionError):
        return said


def fields_in(value: Any, depth: int = 0) -> Iterator[str]:
    """`param` of OpenAI's errors, `loc` of those that FastAPI's servers and Mistral nest."""
    match value:
        case {"param": str(param)} if param:
            yield re.split(r"[.\[]", param)[0]
        case {"loc": ["body", str(name), *_]}:
            yield name
        case dict() | list() if depth < DEEPEST:
            for inner in value.values() if isinstance(value, dict) else value:
                yield from fields_in(inner, depth + 1)


def words_of(body: Any) -> str:
    """The sentence of a refusal."""
    match body:
        case {"error": inner} | {"message": inner} | {"detail": inner} | [inner]:
            return words_of(inner)
        case str(words):
            return words
    return ""
