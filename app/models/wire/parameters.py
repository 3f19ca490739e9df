"""Request parameters of a model: under the names that its server accepts, without those that it refuses."""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from app.core.provider import ProviderNotice
from app.models.capabilities.server_profiles import Limit, Profile
from app.models.http.prompt_too_long import is_too_long
from app.models.wire.structured_output import is_structured
from tools.base.patterns import lazy_pattern

REFUSALS = (400, 422)
OTHER_LIMIT: dict[Limit, Limit] = {
    "max_tokens": "max_completion_tokens",
    "max_completion_tokens": "max_tokens",
}
FORMAT, EFFORT = "response_format", "reasoning_effort"
# Parameters without which the answer is still of use: clients send most of them on their own account, and models that
# think refuse a choice of tools.
HINTS = (
    "parallel_tool_calls", "prompt_cache_key", "prompt_cache_retention", "reasoning_effort", "safety_identifier",
    "service_tier", "tool_choice", "top_k", "verbosity",
)  # fmt: skip
WORDS = ("metadata", "store", "thinking", "user")  # the same, with names that are also words of other complaints
# Those that an agent goes without: of a relay's client the refusal is its own to answer.
SAMPLING = frozenset({"top_p", "seed", "frequency_penalty", "presence_penalty"})
OPTIONAL = lazy_pattern(rf"\b({'|'.join((*OTHER_LIMIT, *HINTS, *sorted(SAMPLING)))}|temperature|stream_options)\b")
NAMED_WORD = lazy_pattern(
    rf"(?:argument|field|input|parameter|propert)\w*\b.{{0,40}}?\b({'|'.join(WORDS)})\b", re.IGNORECASE
)
LEARNED = frozenset({*OTHER_LIMIT, *HINTS, *WORDS, "temperature", "stream_options"})
# Another value of these may be accepted.
BY_VALUE = SAMPLING | {"reasoning_effort", "service_tier", "tool_choice", "top_k", "verbosity"}
# Refusals of a format that do not name its parameter (Groq, vLLM, llama.cpp), and those of one schema only.
ABOUT_FORMAT = lazy_pattern(r"response[_ ]format|json[_ ]schema|json_object|structured output|grammar", re.IGNORECASE)
ABOUT_SCHEMA = lazy_pattern(r"invalid schema|schema conversion|not supported by|grammar|compile", re.IGNORECASE)
# Fields of a body that are the provider's own.
OWN = frozenset({"model", "messages", "tools", "stream", "stream_options"})
REASONERS = lazy_pattern(r"(?:^|/)(?:o\d|gpt-5)", re.IGNORECASE)  # OpenAI's, which refuse max_tokens on all hosts
REFUSED_S = 3600.0  # validity of a refusal: the server may change, or only the value was refused
DROPPED = "The model's server refuses {}: requests are sent without it."
ENFORCED = "The model's server refuses this response_format: the prompt asks for it instead."
READ = 300  # characters of an error text: the request itself may follow
DEEPEST = 6
MOST_KEPT = 256  # refusals: a client may send any number of schemas


class Parameters:
    """Parameters of one model. One that the server refuses is left out for a while."""

    def __init__(self, profile: Profile, clock: Callable[[], float] = time.monotonic) -> None:
        self._profile = profile
        self._clock = clock
        self._refused_at: dict[str, float] = {}
        self._notices: list[ProviderNotice] = []

    def fields(
        self, model: str, max_tokens: int | None, temperature: float | None, given: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """Return the parameters as fields of a request body; those of a client, which are `given`, as they are."""
        given = given or {}
        wanted = {
            **{name: value for name, value in given.items() if is_known(name, value)},
            FORMAT: self.accepted_format(given),
            "stream_options": {"include_usage": True} if self._profile.usage_option else None,
            self._limit(model): max_tokens,
            "temperature": temperature,
        }
        refused = self._refused
        return {
            name: value
            for name, value in wanted.items()
            if value is not None and not (refused and {name, key_of(name, value)} & refused)
        }

    def accepted_format(self, given: Mapping[str, Any]) -> Any:
        """Return the format to request: that of the client, any JSON if its schemas are refused, or None."""
        wanted = given.get(FORMAT)
        if not is_structured(wanted):
            return wanted
        refused = self._refused
        kinds: tuple[Any, ...] = (wanted, {"type": "json_object"})
        return next((one for one in kinds if not refused & {key_of(FORMAT, one), key_of_kind(one)}), None)

    def ignore_format(self, wanted: Mapping[str, Any]) -> None:
        """Request no such format for a while: the server has taken it, and has not kept to it."""
        self._refused_at[key_of_kind(wanted)] = self._clock()

    def learn(self, status: int, text: str, sent: Mapping[str, Any], *, agent: bool = False) -> frozenset[str]:
        """Return the sent fields that this refusal is about, and leave them out from now on.

        An `agent` can do without more of them than a client whose request is relayed.
        """
        if status not in REFUSALS or is_too_long(text):
            return frozenset()
        learned = LEARNED | SAMPLING if agent else LEARNED
        refused = frozenset(name for name in named_in(text) if name in learned and name in sent)
        keys = {key_of(name, sent[name]) if name in BY_VALUE else name for name in refused}
        if not refused and is_structured(sent.get(FORMAT)) and is_about_format(text):
            refused = frozenset({FORMAT})
            keys = {format_key(sent[FORMAT], text)}
            self._notices.append(ProviderNotice("parameter", ENFORCED))
        kept = list(self._refused_at.items())[-MOST_KEPT:]
        self._refused_at = dict(kept) | dict.fromkeys(keys, self._clock())
        self._notices += [
            ProviderNotice("parameter", DROPPED.format(name)) for name in sorted(refused) if self._is_dropped(name)
        ]
        return refused

    def leave_out(self, name: str, value: Any) -> None:
        """Send no such value of a parameter for a while: a refusal was about the fields that stand for it."""
        self._refused_at[key_of(name, value)] = self._clock()
        self._notices.append(ProviderNotice("parameter", DROPPED.format(name)))

    def note(self, notice: ProviderNotice) -> None:
        self._notices.append(notice)

    def refuses(self, name: str, value: Any) -> bool:
        refused = self._refused
        return bool(refused) and not refused.isdisjoint((name, key_of(name, value)))

    def take_notices(self) -> list[ProviderNotice]:
        """Return the notices about dropped parameters since the last call."""
        notices, self._notices = self._notices, []
        return notices

    @property
    def _refused(self) -> set[str]:
        return {name for name, at in self._refused_at.items() if self._clock() < at + REFUSED_S}

    def _is_dropped(self, name: str) -> bool:
        """Return whether the refusal has an effect: the limit has two names, and usage can be estimated."""
        if name in OTHER_LIMIT:
            return self._refused >= set(OTHER_LIMIT)
        return name not in ("stream_options", FORMAT)

    def _limit(self, model: str) -> Limit:
        first = "max_completion_tokens" if REASONERS.search(model) else self._profile.limit
        return OTHER_LIMIT[first] if first in self._refused else first


def limit_in(given: Mapping[str, Any]) -> int | None:
    """Return the token limit among a client's parameters."""
    limits = [given.get(name) for name in ("max_completion_tokens", "max_tokens")]
    return next((limit for limit in limits if isinstance(limit, int) and not isinstance(limit, bool)), None)


def without_limit(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return a client's parameters without its limit.

    Servers with a small window refuse prompts that leave less room than the limit, which clients choose for other
    models. Without one, the answer may have the room that is left.
    """
    return {name: value for name, value in given.items() if name not in OTHER_LIMIT}


def temperature_in(given: Mapping[str, Any]) -> float | None:
    temperature = given.get("temperature")
    return temperature if isinstance(temperature, int | float) and not isinstance(temperature, bool) else None


def key_of(name: str, value: Any) -> str:
    """Return the key under which the refusal of a value is kept."""
    text = json.dumps(value, sort_keys=True, default=str)
    return f"{name}={hashlib.sha256(text.encode()).hexdigest()}"


def key_of_kind(response_format: Mapping[str, Any]) -> str:
    return f"{FORMAT}: {response_format.get('type')}"


def format_key(response_format: Mapping[str, Any], text: str) -> str:
    """Return the key of a refused format: of its kind, unless only its schema was refused."""
    about_schema = ABOUT_SCHEMA.search(message_of(body_of(text))[:READ])
    return key_of(FORMAT, response_format) if about_schema else key_of_kind(response_format)


def is_about_format(text: str) -> bool:
    """Return whether a refusal is about the format, by its fields, or else by the start of its text."""
    body = body_of(text)
    named = set(fields_in(body))
    return FORMAT in named if named else bool(ABOUT_FORMAT.search(message_of(body)[:READ]))


def is_known(name: str, value: Any) -> bool:
    """Return whether a client's parameter goes into the body as it is.

    Some hosts of chat completions have a parameter `thinking`, but none those forms that are Anthropic's alone.
    """
    if name == "thinking" and isinstance(value, dict):
        return value.get("type") != "adaptive" and "budget_tokens" not in value
    return name not in OWN and name not in OTHER_LIMIT and name != "output_config"


def named_in(text: str) -> set[str]:
    """Return the parameters that a refusal names in its fields, or else at the start of its text."""
    body = body_of(text)
    message = message_of(body)[:READ]
    return set(fields_in(body)) or {*OPTIONAL.findall(message), *NAMED_WORD.findall(message)}


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
    """Yield `param` of OpenAI's errors, vLLM's `body.` left out, and `loc` of those of FastAPI servers and Mistral."""
    match value:
        case {"param": str(param)} if param:
            yield re.split(r"[.\[]", param.removeprefix("body."))[0]
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
