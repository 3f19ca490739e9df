"""The body of a lane's request: its JSON, with secrets hidden and the bytes of its files apart.

Clients send the whole conversation each time, pictures included, so a body is longer than any message. A long one is
read beside the event loop.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import Any

from msgspec import Struct
from starlette.requests import Request

from app.core.strict_model import UNSTORABLE
from app.redaction.redactor import Redactor
from routes.lanes.lane import LaneRequest, Prepare, ReadRequest
from routes.protocol.errors import Refused
from routes.protocol.json_body import read_object
from routes.protocol.message_parts import FileLimits, file_limits
from routes.protocol.raw_body import BodyLimits, call_beside_loop, read_body
from routes.services import current_principal, services_of
from tools.base.patterns import lazy_pattern

MOST_BYTES = 32 << 20
USUAL_BYTES = 2 << 20  # above it the body takes an upload slot
MOST_MESSAGES = 10_000  # with their calls: each costs the event loop some microseconds, many times over
LONGEST_SEARCHED = 4096  # characters: longer base64 is not searched for secrets
LIMITS = BodyLimits(
    USUAL_BYTES,
    MOST_BYTES,
    2_000_000,
    f"The body is longer than {MOST_BYTES:,} bytes. Send fewer or smaller pictures, or a shorter conversation.",
    "The body has too many parts. Send a shorter conversation.",
)
# Where clients' formats have bytes in the content of messages. Nothing else becomes bytes: what looks like a data URL
# in a text, or in the arguments of a call, is text.
CONTAINERS = frozenset({"messages", "input", "content", "parts", "image_url", "file", "source"})
BYTES_AT = frozenset({"url", "image_url", "file_data", "data", "value"})
MEDIA_TYPES = ("media_type", "mediaType", "mimeType")
# NUL and halves of characters, which no store takes, as JSON may escape them; this finds whole characters, too.
_ODD_ESCAPE = lazy_pattern(rb"\\u(?:0000|[dD][89a-fA-F])")
REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


class ReadBody(Struct, frozen=True):
    """A request, read; `digest` is that of its bytes."""

    request: LaneRequest
    digest: bytes


async def read_lane_request(request: Request, read: ReadRequest, prepare: Prepare | None = None) -> ReadBody:
    """Raises Refused with 400, 408, 413, or what `prepare` and `read` raise."""
    services = services_of(request)
    limits = file_limits(services.settings)
    async with AsyncExitStack() as held:
        body = await read_body(request, LIMITS, held)
        fields = await call_beside_loop(len(body), fields_of_body, body, services.redactor)
        if prepare:
            fields = await prepare(services, current_principal(request), fields)
        found = await call_beside_loop(len(body), _read, read, fields, limits)
        return ReadBody(found, hashlib.sha256(body).digest())


def _read(read: ReadRequest, fields: Mapping[str, Any], limits: FileLimits) -> LaneRequest:
    found = read(fields)
    check_length(found)
    check_files(found, limits)
    return found


def fields_of_body(body: bytes, redactor: Redactor) -> Mapping[str, Any]:
    """The body's object, redacted. Raises Refused."""
    fields = read_object(body, "model")
    if _ODD_ESCAPE.search(body):
        fields = _storable(fields)
    set_bytes_apart(fields)
    return {redactor.redact(name): _redacted(value, redactor) for name, value in fields.items()}


def _redacted(value: Any, redactor: Redactor) -> Any:
    """Item by item: a search holds the interpreter, and other threads wait for its end."""
    return [redactor.redact_value(one) for one in value] if isinstance(value, list) else redactor.redact_value(value)


def set_bytes_apart(fields: dict[str, Any]) -> None:
    """Turn long base64 in the content of messages into bytes, which the redactor does not search."""
    left: list[Any] = [fields]
    for node in left:  # which grows by what is inside
        if isinstance(node, list):
            left += [one for one in node if isinstance(one, dict)]
            continue
        typed = any(name in node for name in MEDIA_TYPES)
        for name, value in node.items():
            if isinstance(value, str):
                if name in BYTES_AT and len(value) > LONGEST_SEARCHED and (typed or value.startswith("data:")):
                    node[name] = value.encode("ascii", "replace")
            elif name in CONTAINERS and (isinstance(value, list) or (isinstance(value, dict) and name != "input")):
                left.append(value)


def check_length(request: LaneRequest) -> None:
    """Refuse a conversation that would hold up all others."""
    count = sum(1 + len(message.calls) for message in request.messages)
    if count > MOST_MESSAGES:
        problem = f"The conversation has {count:,} messages and calls; send at most {MOST_MESSAGES:,}."
        raise Refused(413, "too_long", problem)


def check_files(request: LaneRequest, limits: FileLimits) -> None:
    """Refuse a message with too many pictures and PDFs, or with too many bytes of them."""
    for at, message in enumerate(request.messages):
        files = message.attachments
        if len(files) > limits.count:
            advice = "Send fewer, or raise DRAGOMAN_MAX_ATTACHMENTS."
            problem = f"Message {at + 1} has {len(files)} pictures and PDFs; {limits.count} are allowed. {advice}"
            raise Refused(400, "too_many_files", problem)
        if sum(file.size for file in files) > limits.bytes:
            advice = "Send smaller or fewer ones, or raise DRAGOMAN_MAX_ATTACHMENT_BYTES."
            problem = f"Message {at + 1} has more than {limits.bytes:,} bytes of pictures and PDFs. {advice}"
            raise Refused(413, "too_long", problem)


def _storable(value: Any) -> Any:
    match value:
        case str():
            return UNSTORABLE.sub(REPLACEMENT, value)
        case dict():
            return {_storable(key): _storable(one) for key, one in value.items()}
        case list():
            return [_storable(one) for one in value]
    return value
