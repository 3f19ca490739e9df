"""What clients may ask for: bodies checked once, with errors that name the field and what is allowed."""

from __future__ import annotations

import json
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator
from starlette.requests import ClientDisconnect, Request

from routes.errors import Refused

ROOM_AROUND_MESSAGE = 64 * 1024  # bytes of a body beside its message
MOST_ESCAPED = 6  # JSON may write one byte of a message as \u00XX


class TextPart(BaseModel):
    model_config = ConfigDict(extra="forbid")
    type: Literal["text"]
    text: str


class ChatRequest(BaseModel):
    """The body of POST /chat. `message` is a string or content parts; it is a string once checked."""

    model_config = ConfigDict(extra="forbid", strict=True)

    message: str | list[TextPart]
    session: str | None = Field(default=None, max_length=64)
    model: str | None = Field(default=None, max_length=256)
    tools: list[str] | None = Field(default=None, max_length=1024)
    max_rounds: int | None = Field(default=None, ge=1, le=200)

    @property
    def text(self) -> str:
        if isinstance(self.message, str):
            return self.message
        return "\n".join(part.text for part in self.message)

    @field_validator("message")
    @classmethod
    def _storable(cls, message: str | list[TextPart]) -> str | list[TextPart]:
        for text in [message] if isinstance(message, str) else [part.text for part in message]:
            for position, character in enumerate(text):
                if character == "\0" or "\ud800" <= character <= "\udfff":
                    raise ValueError(f"holds {character!a} at character {position}; send Unicode text without it")
        return message


async def read_chat(request: Request, max_message_bytes: int) -> ChatRequest:
    """Raises Refused with 400 (not JSON), 413 (too long) or 422 (not a chat request)."""
    fields = _object(await _body(request, max_message_bytes))
    try:
        wish = ChatRequest.model_validate(fields)
    except ValidationError as wrong:
        problems = [_told(error) for error in wrong.errors(include_url=False, include_input=False)]
        raise Refused(422, "invalid_request", "; ".join(problems[:5])) from None
    if not wish.text.strip():
        raise Refused(422, "invalid_request", "message is empty; send what you want to say")
    size = len(wish.text.encode())
    if size > max_message_bytes:
        raise _too_long(max_message_bytes)
    return wish


def cursor(request: Request) -> int:
    """Where to resume: `Last-Event-ID`, else `?after=`, else the beginning. Raises Refused."""
    given = request.headers.get("last-event-id") or request.query_params.get("after") or "0"
    if not given.isascii() or not given.isdigit() or len(given) > 15:
        message = f"Last-Event-ID (or ?after=) is {given[:40]!a}; send the `id:` of the last event you saw"
        raise Refused(400, "invalid_cursor", message)
    return int(given)


async def _body(request: Request, max_message_bytes: int) -> bytes:
    body = bytearray()
    limit = max_message_bytes * MOST_ESCAPED + ROOM_AROUND_MESSAGE
    try:
        async for chunk in request.stream():
            body += chunk
            if len(body) > limit:
                raise _too_long(max_message_bytes)
    except ClientDisconnect:
        raise Refused(400, "body_cut", "The connection closed before the whole body had arrived.") from None
    return bytes(body)


def _too_long(limit: int) -> Refused:
    message = f"message is longer than {limit:,} bytes; shorten it, or raise DRAGOMAN_MAX_MESSAGE_BYTES"
    return Refused(413, "too_long", message)


def _object(body: bytes) -> dict[str, Any]:
    example = """send an object such as {"message": "Hello"}"""
    try:
        fields = json.loads(body)
    except RecursionError:
        raise Refused(400, "invalid_json", f"The body is nested too deeply; {example}") from None
    except ValueError as error:
        raise Refused(400, "invalid_json", f"The body is not JSON ({error}); {example}") from None
    if not isinstance(fields, dict):
        raise Refused(400, "invalid_json", f"The body is JSON but not an object; {example}")
    return fields


def _told(error: Any) -> str:
    place = ".".join(ascii(step).strip("'")[:40] for step in error["loc"] if step not in UNION_STEPS)
    if error["type"] == "extra_forbidden":
        return f"unknown field {place}; allowed are {', '.join(ChatRequest.model_fields)}"
    if error["type"] == "missing":
        return f"{place} is missing"
    return f"{place or NAMELESS}: {error['msg'].removeprefix('Value error, ')}"


NAMELESS = "the name of a field"  # one that is not Unicode text
UNION_STEPS = frozenset({"str", "list[TextPart]"})  # pydantic's names for the two forms of `message`
