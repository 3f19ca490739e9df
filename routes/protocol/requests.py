"""Bodies of requests, validated once, with errors that name the field and what is allowed."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import Annotated, Any, Literal, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    Field,
    ValidationError,
    model_validator,
)
from starlette.requests import Request

from app.core.labels import MOST_LABELS, LabelName
from app.core.profile_spec import SessionPresets
from app.core.strict_model import StrictModel
from app.policy.doors import ClientDoor
from app.redaction.redactor import Redactor
from app.runs.run_options import RunOptions
from app.storage.people.members import checked_outside
from app.storage.principals import Principal
from app.transcript.run_request import IdempotencyKey
from app.transcript.titles import LONGEST_TITLE, one_line
from app.transcript.unfit_arguments import unfit
from routes.protocol.errors import Refused
from routes.protocol.json_body import read_object
from routes.protocol.message_parts import FORMS, NO_FILES, Content, FileLimits, MessageRequest, set_bytes_apart
from routes.protocol.raw_body import BODY_TIME_S, BodyLimits, call_beside_loop, read_body
from routes.protocol.unknown_keys import HINTS, MOST_NAMED, with_few_unknown
from tools.base.rights import Role
from tools.web.egress import MAX_HOSTS

MAX_KEY_LENGTH = 255
ROOM_AROUND_MESSAGE = 256 * 1024  # bytes of a body beside its message: `system` alone may need 12 a character
MOST_RESULTS = 512
MOST_SYSTEM = 16_000  # characters
MOST_TYPED, MOST_KEYS = 1_000, 32  # a terminal holds 4,095 bytes of a line
KEYS = {
    "enter": b"\r",
    "tab": b"\t",
    "escape": b"\x1b",
    "backspace": b"\x7f",
    "up": b"\x1b[A",
    "down": b"\x1b[B",
    "right": b"\x1b[C",
    "left": b"\x1b[D",
    "ctrl-c": b"\x03",
    "ctrl-d": b"\x04",
    "ctrl-z": b"\x1a",
    "ctrl-\\": b"\x1c",
}
MOST_ESCAPED = 6  # JSON may write one byte of a message as \u00XX
MOST_WRITTEN = 2_000  # characters of a title, invisible ones included


OutsideName = Annotated[str, AfterValidator(checked_outside)]  # of another service, for a conversation or a person


class ToolResult(StrictModel):
    """The client's result of a call that `tool.handed` has handed over to it."""

    call: str = Field(min_length=1, max_length=128)
    text: str


class ChatRequest(RunOptions, MessageRequest):
    """The body of POST /chat. `message` may be left out beside `tool_results`."""

    message: Content = ""
    tool_results: list[ToolResult] = Field(default_factory=list, max_length=MOST_RESULTS)
    session: str | None = Field(default=None, max_length=64)
    conversation: OutsideName | None = None
    member: OutsideName | None = None
    when_busy: Literal["refuse", "queue"] = "refuse"
    on_disconnect: Literal["continue", "cancel"] = "continue"
    labels: list[LabelName] = Field(default_factory=list, max_length=MOST_LABELS)
    files_of: str | None = Field(default=None, max_length=64)

    @model_validator(mode="after")
    def _sensible(self) -> ChatRequest:
        if self.tool_results and self.session is None and self.conversation is None:
            raise ValueError("tool_results belong to the session that handed the calls over; send session as well")
        if self.system and len(self.system.text) > MOST_SYSTEM:
            length = len(self.system.text)
            raise ValueError(
                f"system.text: has {length:,} characters, at most {MOST_SYSTEM:,}; put the rest into message"
            )
        return self

    @property
    def is_empty(self) -> bool:
        return not self.tool_results and self.files_of is None and super().is_empty


class ApprovalRequest(StrictModel):
    """The body of POST /runs/{id}/approvals/{call}."""

    decision: Literal["approve", "deny"]
    scope: Literal["once", "session", "always"] = "once"
    arguments: dict[str, Any] | None = None
    pattern: dict[str, Any] | None = Field(default=None, min_length=1, max_length=32)
    hosts: list[str] | None = Field(default=None, min_length=1, max_length=MAX_HOSTS)
    note: str | None = Field(default=None, max_length=2000)
    door: ClientDoor = "api"
    per_day: int | None = Field(default=None, ge=1, le=1_000_000)
    expires: float | None = Field(default=None, gt=0, allow_inf_nan=False)

    @model_validator(mode="after")
    def _sensible(self) -> ApprovalRequest:
        if self.scope != "once" and self.decision != "approve":
            raise ValueError(f"scope {self.scope} goes with decision approve; a denial is for this call")
        if self.pattern and self.scope == "once":
            raise ValueError("pattern goes with decision approve and scope session or always")
        if self.scope == "always" and not self.pattern:
            raise ValueError("scope always goes with the pattern of one of the approval's proposals")
        if self.scope != "always" and (self.per_day or self.expires):
            raise ValueError("per_day and expires go with scope always")
        if self.scope == "session" and not all(isinstance(one, str) for one in (self.pattern or {}).values()):
            raise ValueError("pattern: with scope session each argument has a text as its pattern")
        if self.hosts and (self.pattern or self.decision != "approve"):
            raise ValueError("hosts go with decision approve, and without a pattern")
        if self.arguments is not None and self.decision != "approve":
            raise ValueError("arguments go with decision approve")
        if self.arguments is not None and (reason := unfit(self.arguments)):
            raise ValueError(reason)
        return self


class SessionRequest(StrictModel):
    """The body of PATCH /sessions/{id}: its title, patterns of the tools that it goes without, options of its runs.

    `profile` is one of those options; null is none. `options` replaces the others. `labels` are added. A null `folder`
    takes it out of its folder.
    """

    title: str | None = Field(default=None, max_length=MOST_WRITTEN)
    disabled_tools: list[Annotated[str, Field(min_length=1, max_length=200)]] | None = Field(
        default=None, max_length=256
    )
    labels: list[LabelName] | None = Field(default=None, max_length=MOST_LABELS)
    profile: str | None = Field(default=None, max_length=64)
    options: SessionPresets | None = None
    read_only: bool | None = None
    pinned: bool | None = None
    archived: bool | None = None
    folder: str | None = Field(default=None, max_length=64)

    @property
    def sets_options(self) -> bool:
        return not {"profile", "options", "read_only"}.isdisjoint(self.model_fields_set)

    @property
    def moves(self) -> bool:
        return "folder" in self.model_fields_set

    @model_validator(mode="after")
    def _sensible(self) -> SessionRequest:
        changed = (self.title, self.disabled_tools, self.labels, self.pinned, self.archived)
        if not self.sets_options and not self.moves and all(one is None for one in changed):
            raise ValueError(
                "send title, pinned, archived, folder, disabled_tools, profile, options, read_only or labels"
            )
        if self.title is not None:
            self.title = one_line(self.title)
            if not 1 <= len(self.title) <= LONGEST_TITLE:
                raise ValueError(f"title has {len(self.title)} visible characters; send 1 to {LONGEST_TITLE}")
        return self


class PauseRequest(StrictModel):
    """The body of POST /pause, which may be empty: `cancel` also stops what runs."""

    cancel: bool = False


class InputRequest(StrictModel):
    """The body of POST /runs/{id}/calls/{call}/input: `text`, then `keys`; the program reads a line once it has ended.

    `data` is what its terminal gets.
    """

    text: str = Field(default="", max_length=MOST_TYPED)
    keys: list[Literal[tuple(KEYS)]] = Field(default=[], max_length=MOST_KEYS)  # type: ignore[valid-type]

    @property
    def data(self) -> bytes:
        return self.text.encode() + b"".join(KEYS[key] for key in self.keys)

    @model_validator(mode="after")
    def _typable(self) -> InputRequest:
        if not self.text and not self.keys:
            raise ValueError("send text or keys")
        if any("\ud800" <= character <= "\udfff" for character in self.text):
            raise ValueError("text: holds a lone surrogate; send valid text")
        return self


Body = TypeVar("Body", bound=BaseModel)
Words = TypeVar("Words", bound=MessageRequest)


async def read_message(
    request: Request,
    kind: type[Words],
    max_message_bytes: int,
    limits: FileLimits = NO_FILES,
    time_limit_s: float = BODY_TIME_S,
) -> Words:
    """Raises Refused with 400 (not JSON), 408 (too slow), 413 (too long) or 422 (not such a request)."""
    async with AsyncExitStack() as held:
        body = await read_body(request, _limits(max_message_bytes, limits.room), held, time_limit_s)
        parsed = checked(kind, await _redacted_fields(request, kind, body))
        if len(parsed.text.encode()) > max_message_bytes:
            raise Refused(413, "too_long", _too_long(max_message_bytes))
        await parsed.read_files(limits)
    if parsed.is_empty:
        raise Refused(422, "invalid_request", "message is empty; send what you want to say")
    return parsed


async def read_fields(
    request: Request, kind: type[Body], max_bytes: int = 0, *, plain: bool = False, empty: bool = False
) -> Body:
    """A body without a message. Raises Refused as `read_message` does.

    `plain`: with its secrets, because it is there to tell them. `empty`: it may be left out.
    """
    body = await read_body(request, _limits(max_bytes))
    if empty and not body.strip():
        return checked(kind, {})
    return checked(
        kind, read_object(body, _first_field(kind)) if plain else await _redacted_fields(request, kind, body)
    )


async def read_changes(request: Request, kind: type[BaseModel], max_bytes: int = 0) -> dict[str, Any]:
    """Some fields of a body of this kind, not checked yet. Raises Refused with 400, 408 or 413."""
    return await _redacted_fields(request, kind, await read_body(request, _limits(max_bytes)))


def checked(kind: type[Body], fields: dict[str, Any]) -> Body:
    """Raises Refused with 422, naming each field that is wrong."""
    try:
        return kind.model_validate(with_few_unknown(kind, fields))
    except ValidationError as wrong:
        errors = wrong.errors(include_url=False, include_input=False)[:MOST_NAMED]
        raise Refused(422, "invalid_request", "; ".join(_problem(error, kind) for error in errors)) from None


def key_of(request: Request, fingerprint: str) -> IdempotencyKey | None:
    """The request's Idempotency-Key with this fingerprint. Raises Refused."""
    value = request.headers.get("idempotency-key")
    if value is None:
        return None
    if not 0 < len(value) <= MAX_KEY_LENGTH or not value.isprintable():
        raise Refused(400, "invalid_key", f"Idempotency-Key must have 1 to {MAX_KEY_LENGTH} printable characters")
    return IdempotencyKey(value, fingerprint)


def admins_only(principal: Principal) -> None:
    """Raises Refused."""
    if principal.role is not Role.ADMIN:
        raise Refused(403, "forbidden", f"This is for admins; {principal.name} is a {principal.role}.")


async def _redacted_fields(request: Request, kind: type[BaseModel], body: bytes) -> dict[str, Any]:
    """The body's object. What a person gives away without need goes no further, either."""
    redactor: Redactor = request.app.state.services.redactor
    return await call_beside_loop(len(body), _fields_in, body, kind, redactor)


def _fields_in(body: bytes, kind: type[BaseModel], redactor: Redactor) -> dict[str, Any]:
    fields: dict[str, Any] = with_few_unknown(kind, read_object(body, _first_field(kind)))
    set_bytes_apart(fields)
    return redactor.redact_value(fields)


def _first_field(kind: type[BaseModel]) -> str:
    return next(iter(kind.model_fields))


def _limits(max_message_bytes: int, room_for_files: int = 0) -> BodyLimits:
    usual = max_message_bytes * MOST_ESCAPED + ROOM_AROUND_MESSAGE
    too_long = _too_long(max_message_bytes, with_files=room_for_files > 0)
    return BodyLimits(usual, usual + room_for_files, max_message_bytes + ROOM_AROUND_MESSAGE, too_long)


def _too_long(limit: int, *, with_files: bool = False) -> str:
    files = " (for pictures and PDFs: fewer or smaller ones, or DRAGOMAN_MAX_ATTACHMENT_BYTES)" if with_files else ""
    return f"message is longer than {limit:,} bytes; shorten it, or raise DRAGOMAN_MAX_MESSAGE_BYTES{files}"


def _problem(error: Any, kind: type[BaseModel]) -> str:
    place = ".".join(ascii(step).strip("'")[:40] for step in error["loc"] if step not in FORMS)
    if error["type"] == "extra_forbidden":
        if place in HINTS and issubclass(kind, MessageRequest):
            return f"unknown field {place}; {HINTS[place]}"
        allowed = f"; allowed are {', '.join(kind.model_fields)}" if len(error["loc"]) == 1 else ""
        return f"unknown field {place}{allowed}"
    if error["type"] == "missing":
        return f"{place} is missing"
    if error["type"] == "bytes_type":  # which JSON has not
        return f"{place}: send its bytes as a string of base64"
    problem: str = error["msg"].removeprefix("Value error, ")
    if not place and error["type"] == "value_error":
        return problem  # of the whole request
    return f"{place or NAMELESS}: {problem}"


NAMELESS = "the name of a field"  # one that is not Unicode text
