"""What a model's server says of itself: how much the model can read and write at a time, and how to count tokens."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import Any
from urllib.parse import quote

import httpx2

from app.providers.http import CLOSED, NoAnswer, is_local, json_answer
from app.providers.too_long import LARGEST, SMALLEST
from app.providers.wire import encodable, encode

LIMIT_S = 5.0  # for a look-up, and for a count
AGAIN_S = 60.0  # after one that failed
MAX_LIST_BYTES = 16 * 1024 * 1024  # some gateways list hundreds of models, with their stories
ALONGSIDE = 4  # requests for counts at a time
BATCH_CHARACTERS = 64 * 1024
BATCH_TEXTS = 256
BETWEEN = -1  # no token has this number
LONGEST = 256  # characters of one token
EACH = 8  # tokens that a server may put around a text

Field = tuple[str, ...]
# Where an entry of a list of models says how much the model can read: the first field that is there is taken. What a
# model was trained for (`n_ctx_train`) is not what its server has room for.
WINDOWS: tuple[Field, ...] = (
    ("max_model_len",),  # vLLM, SGLang
    ("loaded_context_length",),  # LM Studio
    ("top_provider", "context_length"),  # OpenRouter: of the host that it sends to first
    ("context_window",),  # Groq
    ("context_length",),  # OpenRouter, Together, Ollama
    ("max_context_length",),  # Mistral, LM Studio
)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One model of one server."""

    client: httpx2.AsyncClient
    base_url: str
    model: str
    key: str | None = None

    @property
    def root(self) -> str:
        return self.base_url.removesuffix("/v1")

    async def ask(self, method: str, url: str, body: Mapping[str, Any] | None = None) -> Any:
        """Raises NoAnswer, httpx2.HTTPError."""
        content = None if body is None else encode(body)
        asked = partial(json_answer, self.client, method, url, self.key, content=content, most=MAX_LIST_BYTES)
        try:
            return await asked()
        except CLOSED:
            return await asked()


@dataclass(frozen=True, slots=True)
class CountForm:
    """How a server is asked for tokens: `texts` at a time, the body to POST, and the counts in its answer."""

    texts: int
    body: Callable[[str, Sequence[str]], Mapping[str, Any]]
    counts: Callable[[Any], list[int] | None]


def llama_body(model: str, texts: Sequence[str]) -> Mapping[str, Any]:
    # Numbers between texts are taken for tokens and come back as they are: one request counts many texts.
    content = [part for text in texts for part in (text, BETWEEN)]
    return {"model": model, "content": content, "add_special": False, "with_pieces": False}


def llama_counts(answer: Any) -> list[int] | None:
    match answer:
        case {"tokens": list(tokens)} if tokens and tokens[-1] == BETWEEN:
            return list(between(tokens))
    return None


def between(tokens: Sequence[Any]) -> Iterator[int]:
    count = 0
    for token in tokens:
        if token == BETWEEN:
            yield count
            count = 0
        else:
            count += 1


def vllm_body(model: str, texts: Sequence[str]) -> Mapping[str, Any]:
    return {"model": model, "prompt": texts[0], "add_special_tokens": False}


def vllm_counts(answer: Any) -> list[int] | None:
    match answer:
        case {"count": int(count)} if count >= 0:
            return [count]
    return None


LLAMA_CPP = CountForm(BATCH_TEXTS, llama_body, llama_counts)
VLLM = CountForm(1, vllm_body, vllm_counts)


@dataclass(frozen=True, slots=True)
class Known:
    """What a server has said of a model: tokens that it can read and write at a time, and how it counts."""

    window: int | None = None
    counting: CountForm | None = None


NOTHING = Known()


@dataclass(frozen=True, slots=True)
class Source:
    """A place to ask, with what its answer says. `local`: hosted services have no such thing and are not asked."""

    url: Callable[[Endpoint], str]
    read: Callable[[Any, str], Known]
    local: bool = False


def listed(answer: Any, model: str) -> Known:
    """An entry in a list of models."""
    entry = entry_of(answer, model)
    window = next(filter(None, (number_at(entry, field) for field in WINDOWS)), None)
    return Known(window, VLLM if number_at(entry, ("max_model_len",)) else None)


def entry_of(answer: Any, model: str) -> Any:
    match answer:
        case {"data": list(entries)} | {"models": list(entries)}:
            of_model = [one for one in entries if isinstance(one, dict) and model in (one.get("id"), one.get("name"))]
            return of_model[0] if of_model else None
    return None


def of_slot(answer: Any, model: str) -> Known:
    """llama.cpp's properties: what one of its slots can hold."""
    window = number_at(answer, ("default_generation_settings", "n_ctx"))
    return Known(window, LLAMA_CPP) if window else NOTHING


def number_at(value: Any, field: Field) -> int | None:
    for name in field:
        value = value.get(name) if isinstance(value, dict) else None
    return value if isinstance(value, int) and SMALLEST <= value <= LARGEST else None


# Asked in this order until one knows the window.
SOURCES = (
    Source(lambda one: f"{one.base_url}/models", listed),
    Source(lambda one: f"{one.root}/props?model={quote(one.model, safe='')}", of_slot),
    Source(lambda one: f"{one.root}/api/v0/models", listed, local=True),  # LM Studio
    Source(lambda one: f"{one.root}/api/ps", listed, local=True),  # Ollama: what it has loaded, and how large
)


class Abilities:
    """What is known per endpoint and model. Each is asked once; after a failure again, but not at once.

    Whoever asks for the same at the same time waits for one look-up. Nothing here raises.
    """

    def __init__(self, limit_s: float = LIMIT_S, clock: Callable[[], float] = time.monotonic) -> None:
        self._limit_s = limit_s
        self._clock = clock
        self._known: dict[tuple[str, str], Known] = {}
        self._not_before: dict[tuple[str, str], float] = {}
        self._uncounted: set[tuple[str, str]] = set()
        self._asking = asyncio.Lock()

    async def window(self, endpoint: Endpoint) -> int | None:
        return (await self._of(endpoint)).window

    async def count(self, endpoint: Endpoint, texts: Sequence[str]) -> list[int] | None:
        key = endpoint.base_url, endpoint.model
        form = (await self._of(endpoint)).counting
        if form is None or key in self._uncounted:
            return None
        try:
            async with asyncio.timeout(self._limit_s):
                return await counted(endpoint, form, texts)
        except NoAnswer as refusal:
            if refusal.lasting:
                self._uncounted.add(key)
        except (TimeoutError, httpx2.HTTPError):
            pass  # busy, or gone: the next texts may be counted again
        return None

    async def _of(self, endpoint: Endpoint) -> Known:
        key = endpoint.base_url, endpoint.model
        async with self._asking:
            if key in self._known:
                return self._known[key]
            if self._clock() < self._not_before.get(key, 0.0):
                return NOTHING
            known = await looked_up(endpoint, self._limit_s)
            if known is None:
                self._not_before[key] = self._clock() + AGAIN_S
                return NOTHING
            self._known[key] = known
            return known


async def looked_up(endpoint: Endpoint, limit_s: float) -> Known | None:
    """What the server says; None if it cannot be asked now, or may know more once it has loaded the model."""
    local = is_local(endpoint.base_url)
    try:
        async with asyncio.timeout(limit_s):
            for source in SOURCES:
                if source.local and not local:
                    continue
                known = await told_by(source, endpoint)
                if known.window:
                    return known
    except (TimeoutError, httpx2.HTTPError, NoAnswer):
        return None
    return None if local else NOTHING


async def told_by(source: Source, endpoint: Endpoint) -> Known:
    """Raises NoAnswer if it may answer later, httpx2.HTTPError."""
    try:
        return source.read(await endpoint.ask("GET", source.url(endpoint)), endpoint.model)
    except NoAnswer as refusal:
        if not refusal.lasting:
            raise
        return NOTHING


async def counted(endpoint: Endpoint, form: CountForm, texts: Sequence[str]) -> list[int]:
    """Raises NoAnswer, httpx2.HTTPError."""
    turns = asyncio.Semaphore(ALONGSIDE)
    url = f"{endpoint.root}/tokenize"

    async def count(batch: Sequence[str]) -> list[int]:
        async with turns:
            counts = form.counts(await endpoint.ask("POST", url, form.body(endpoint.model, batch)))
        if counts is None or len(counts) != len(batch) or not believable(batch, counts):
            raise NoAnswer("counts that cannot be read", lasting=True)
        return counts

    failure: BaseException | None = None
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(count(batch)) for batch in batches(texts, form.texts)]
    except* (NoAnswer, httpx2.HTTPError) as failed:
        failure = first_of(failed)
    if failure:
        raise failure
    return [count for task in tasks for count in task.result()]


def believable(texts: Sequence[str], counts: Sequence[int]) -> bool:
    """Whether so many tokens can be in these texts: by counts that are made up, no conversation could be fitted."""
    least = sum(map(len, texts)) // LONGEST
    most = sum(len(text.encode("utf-8", "surrogatepass")) + EACH for text in texts)
    return least <= sum(counts) <= most


def first_of(group: BaseExceptionGroup[Any]) -> BaseException:
    first: BaseException = group
    while isinstance(first, BaseExceptionGroup):
        first = first.exceptions[0]
    return first


def batches(texts: Sequence[str], most: int) -> Iterator[list[str]]:
    """The texts in order, so many at a time at most, and not too many characters."""
    starts, place, size, many = [], 0, 0, 0
    for text in texts:
        if many == most or (many and size + len(text) > BATCH_CHARACTERS):
            place, size, many = place + 1, 0, 0
        size, many = size + len(text), many + 1
        starts.append(place)
    for _, batch in groupby(zip(starts, texts, strict=True), key=lambda pair: pair[0]):
        yield [encodable(text) for _, text in batch]
