"""The server's list of models: GET {base}/models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import httpx2

from app.models.http import failures
from app.models.http.client import NoAnswer, json_answer
from app.models.http.served_model import MAX_LIST_BYTES

MOST = 5000
LONGEST = 256  # characters of a name
UNNAMED = "default"
NOT_FOR_CHAT = ("embed", "rerank", "whisper", "tts")


class NoModelList(ValueError):
    """The answer is not a list of models. `status` is set if it is not 200."""

    def __init__(self, why: str, status: int | None = None) -> None:
        super().__init__(why)
        self.status = status


async def first_model(client: httpx2.AsyncClient, base_url: str, headers: Mapping[str, str]) -> str:
    """Return the server's first chat model; `default` if it has no list. Raises ProviderFailed if it is down."""
    try:
        names = await listed_models(client, base_url, headers)
    except NoModelList:
        return UNNAMED
    return chat_model(names) or UNNAMED


async def listed_models(
    client: httpx2.AsyncClient, base_url: str, headers: Mapping[str, str], query: str = ""
) -> list[str]:
    """Return the names in the server's list of models. Raises NoModelList, and ProviderFailed if it is down."""
    url = f"{base_url}/models"
    try:
        return await model_names(client, base_url, headers, query)
    except httpx2.TimeoutException as error:
        raise failures.silent(url, client.timeout.read) from error
    except httpx2.HTTPError as error:
        raise failures.unreachable(url, str(error)) from error


async def model_names(
    client: httpx2.AsyncClient,
    base_url: str,
    headers: Mapping[str, str] | None = None,
    query: str = "",
) -> list[str]:
    """Return the names in the server's list of models. Raises NoModelList and httpx2.HTTPError."""
    url = f"{base_url}/models{query}"
    try:
        value = await json_answer(client, "GET", url, most=MAX_LIST_BYTES, headers=headers)
    except NoAnswer as error:
        raise NoModelList(str(error), error.status) from error
    return names_in(value)


def names_in(value: Any) -> list[str]:
    match value:
        case {"data": list(models)}:
            names = [model["id"] for model in models if isinstance(model, dict) and isinstance(model.get("id"), str)]
            return [name for name in names if 0 < len(name) <= LONGEST and name.isprintable()][:MOST]
    raise NoModelList("no list named data")


def chat_model(names: Sequence[str]) -> str | None:
    """Return the first model that is not for embedding, ranking or speech; servers list those as well."""
    return next((name for name in names if not any(word in name.lower() for word in NOT_FOR_CHAT)), None)
