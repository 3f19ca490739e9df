"""openai (Python): a response in the background, followed until the server dies, and again when it is back.

Reads the address, the key and the model, then, when its stream has ended, the new address; writes what it saw.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import httpx2
from openai import OpenAI, OpenAIError

FOLLOWED = 10  # events after which the server may die


def client_of(url: str, key: str) -> OpenAI:
    return OpenAI(base_url=f"{url}/v1", api_key=key, max_retries=0, timeout=40)


def write(row: dict[str, Any]) -> None:
    print(json.dumps(row), flush=True)


def followed(stream: Any, events: list[dict[str, Any]], announce: bool) -> str:
    """Collect its events; the name of the error that it ended in."""
    try:
        for event in stream:
            events.append(event.to_dict(mode="json"))
            if announce and len(events) == FOLLOWED:
                write({"followed": FOLLOWED})
    except (OpenAIError, httpx2.HTTPError) as error:  # in a stream the package passes those of its HTTP client on
        return type(error).__name__
    return ""


def main(url: str, key: str, model: str) -> None:
    events: list[dict[str, Any]] = []
    prompt = "scenario slow (job background)."
    stream = client_of(url, key).responses.create(model=model, input=prompt, background=True, stream=True, store=True)
    error = followed(stream, events, announce=True)
    write({"events": events, "error": error})
    client = client_of(sys.stdin.readline().strip(), key)
    identity, number = events[0]["response"]["id"], events[-1]["sequence_number"]
    rest: list[dict[str, Any]] = []
    again: list[dict[str, Any]] = []
    followed(client.responses.retrieve(identity, stream=True, starting_after=number), rest, announce=False)
    followed(client.responses.retrieve(identity, stream=True), again, announce=False)
    kept = client.responses.retrieve(identity)
    write({"rest": rest, "again": again, "kept": kept.to_dict(mode="json")})


if __name__ == "__main__":
    main(*sys.argv[1:])
