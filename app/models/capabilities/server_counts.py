"""Token counting by servers: the request of each kind of server, in batches, with a plausibility check."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import httpx2
from msgspec import Struct

from app.models.http.client import NoAnswer
from app.models.http.json_body import encodable
from app.models.http.served_model import ServedModel

ALONGSIDE = 4  # concurrent requests
BATCH_CHARACTERS = 64 * 1024
BATCH_TEXTS = 256
BETWEEN = -1  # not a valid token id
LONGEST = 256  # characters of one token
EACH = 8  # tokens that a server may add to a text


class CountForm(Struct, frozen=True):
    """Request format of one kind of server: texts per request, the body to POST, and the counts in the answer."""

    name: str
    texts: int
    body: Callable[[str, Sequence[str]], Mapping[str, Any]]
    counts: Callable[[Any], list[int] | None]


def llama_body(model: str, texts: Sequence[str]) -> Mapping[str, Any]:
    # Numbers in the content are returned unchanged as tokens: with separators, one request counts many texts.
    content = [part for text in texts for part in (text, BETWEEN)]
    return {"model": model, "content": content, "add_special": False, "with_pieces": False}


def llama_counts(answer: Any) -> list[int] | None:
    match answer:
        case {"tokens": list(tokens)} if tokens and tokens[-1] == BETWEEN:
            ends = [-1, *(at for at, token in enumerate(tokens) if token == BETWEEN)]
            return [end - start - 1 for start, end in pairwise(ends)]
    return None


def vllm_body(model: str, texts: Sequence[str]) -> Mapping[str, Any]:
    return {"model": model, "prompt": texts[0], "add_special_tokens": False}


def vllm_counts(answer: Any) -> list[int] | None:
    match answer:
        case {"count": int(count)} if count >= 0:
            return [count]
    return None


LLAMA_CPP = CountForm("llama.cpp", BATCH_TEXTS, llama_body, llama_counts)
VLLM = CountForm("vLLM", 1, vllm_body, vllm_counts)


async def counted(endpoint: ServedModel, form: CountForm, texts: Sequence[str]) -> list[int]:
    """Count the tokens of each text. Raises NoAnswer, httpx2.HTTPError."""
    turns = asyncio.Semaphore(ALONGSIDE)
    url = f"{endpoint.root}/tokenize"

    async def count(batch: Sequence[str]) -> list[int]:
        async with turns:
            counts = form.counts(await endpoint.ask("POST", url, form.body(endpoint.model, batch)))
        if counts is None or len(counts) != len(batch) or not plausible(batch, counts):
            raise NoAnswer("counts that cannot be read", lasting=True)
        return counts

    failure: BaseException | None = None
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(count(batch)) for batch in batches(texts, form.texts)]
    except* (NoAnswer, httpx2.HTTPError) as failed:
        failure = failed.exceptions[0]
    if failure:
        raise failure
    return [count for task in tasks for count in task.result()]


def plausible(texts: Sequence[str], counts: Sequence[int]) -> bool:
    """Return whether the counts are plausible; wrong ones would make it impossible to fit a conversation."""
    least = sum(map(len, texts)) // LONGEST
    most = sum(len(text.encode("utf-8", "surrogatepass")) + EACH for text in texts)
    return least <= sum(counts) <= most


def batches(texts: Sequence[str], most: int) -> Iterator[list[str]]:
    """Yield the texts in order, in batches with a limited number of texts and characters."""
    batch: list[str] = []
    size = 0
    for text in texts:
        if batch and (len(batch) == most or size + len(text) > BATCH_CHARACTERS):
            yield batch
            batch, size = [], 0
        batch.append(encodable(text))
        size += len(text)
    if batch:
        yield batch
