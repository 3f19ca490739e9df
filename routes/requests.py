"""What clients may ask for: bodies checked once, with errors that name the field and what is allowed."""

from __future__ import annotations

import hashlib
import json
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator
from starlette.requests import ClientDisconnect, Request

from app.runs import Key
from app.settings import DAY_S
from routes.errors import Refused

MAX_KEY_LENGTH = 255
ROOM_AROUND_MESSAGE = 64 * 1024  # bytes of a body beside its message
MOST_ESCAPED = 6  # JSON may write one byte of a message as \u00XX


class TextPart(BaseModel):
    model_config = ConfigDict(extra="forbid")
    type: Literal["text"]
    text: str


class MessageRequest(BaseModel):
    """The body of POST /runs/{id}/messages. `message` is a string or content parts; `text` is what they say."""

    model_config = ConfigDict(extra="forbid", strict=True)

    message: str | list[TextPart]

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


class ChatRequest(MessageRequest):
    """The body of POST /chat."""

    session: str | None = Field(default=None, max_length=64)
    model: str | None = Field(default=None, max_length=256)
    tools: list[str] | None = Field(default=None, max_length=1024)
    max_rounds: int | None = Field(default=None, ge=1, le=200)
    time_limit_s: float | None = Field(default=None, gt=0, le=DAY_S)
    inactivity_s: float | None = Field(default=None, gt=0, le=DAY_S)
    when_busy: Literal["refuse", "queue"] = "refuse"
    on_disconnect: Literal["continue", "cancel"] = "continue"


class PauseRequest(BaseModel):
    """The body of POST /pause, which may be empty: `cancel` also stops what runs."""

    model_config = ConfigDict(extra="forbid", strict=True)

    cancel: bool = False


Body = TypeVar("Body", bound=BaseModel)
Words = TypeVar("Words", bound=MessageRequest)


async def read_message(request: Request, kind: type[Words], max_message_bytes: int) -> Words:
    """Raises Refused with 400 (not JSON), 413 (too long) or 422 (not such a request)."""
    wish = checked(kind, _object(await _body(request, max_message_bytes)))
    if not wish.text.strip():
        raise Refused(422, "invalid_request", "message is empty; send what you want to say")
    if len(wish.text.encode()) > max_message_bytes:
        raise _too_long(max_message_bytes)
    return wish


async def read_pause(request: Request) -> PauseRequest:
    body = await _body(request, 0)
    return checked(PauseRequest, _object(body) if body.strip() else {})


def checked(kind: type[Body], fields: dict[str, Any]) -> Body:
    """Raises Refused with 422, naming each field that is wrong."""
    try:
        return kind.model_validate(fields)
    except ValidationError as wrong:
        problems = [_told(error, kind) for error in wrong.errors(include_url=False, include_input=False)]
        raise Refused(422, "invalid_request", "; ".join(problems[:5])) from None


def idempotency_key(request: Request, wish: ChatRequest) -> Key | None:
    """The request's Idempotency-Key, with a fingerprint of what it asks for. Raises Refused."""
    value = request.headers.get("idempotency-key")
    if value is None:
        return None
    if not 0 < len(value) <= MAX_KEY_LENGTH or not value.isprintable():
        raise Refused(400, "invalid_key", f"Idempotency-Key must have 1 to {MAX_KEY_LENGTH} printable characters")
    return Key(value, hashlib.sha256(wish.model_dump_json(exclude_defaults=True).encode()).hexdigest())


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


def _told(error: Any, kind: type[BaseModel]) -> str:
    place = ".".join(ascii(step).strip("'")[:40] for step in error["loc"] if step not in UNION_STEPS)
    if error["type"] == "extra_forbidden":
        return f"unknown field {place}; allowed are {', '.join(kind.model_fields)}"
    if error["type"] == "missing":
        return f"{place} is missing"
    return f"{place or NAMELESS}: {error['msg'].removeprefix('Value error, ')}"


NAMELESS = "the name of a field"  # one that is not Unicode text
UNION_STEPS = frozenset({"str", "list[TextPart]"})  # pydantic's names for the two forms of `message`
