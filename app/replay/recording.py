"""A recording: one run with all that it was made of, as a file that a project keeps beside its tests.

The format is documented in docs/replay.md. It is JSON with a version; a file of a newer version, one that was cut, and
one that was edited by hand (`sum` is a digest of all the rest) are refused, each with what to do.
"""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct, field

from app.context.compaction.replay import CompactedState
from app.redaction.redactor import Redactor
from app.runs.recording.parts import Begin, Decided, RequestPart, Since

FORMAT, VERSION = "dragoman run", 1
NEEDED = {  # the fields of events that a replay reads
    "notice": {"code", "message"},
    "tool.started": {"call", "name", "arguments"},
    "tool.finished": {"call", "name", "ok", "text"},
    "approval.required": {"call", "name", "arguments"},
    "usage": {"prompt_tokens", "completion_tokens"},
    "run.finished": {"usage"},
}
MOST_BYTES = 1 << 28
LONGEST_LINE = 140  # characters of a value that stands in one
NO_EVENTS = "It has no events: the run has not begun."


class UnusableRecording(Exception):
    """The recording cannot be used. The message says why and what to do."""


class RunPart(Struct, omit_defaults=True):
    """The run: its row, and the `lane` that it came through."""

    id: str
    session: str
    principal: str
    model: str
    state: str
    created: float
    policy: dict[str, Any] = field(default_factory=dict)
    lane: dict[str, Any] | None = None
    ended: float | None = None


class ResultPart(Struct, omit_defaults=True):
    """The whole result of a call. `before`: events that came with it (files, documents, plans), in their order."""

    call: str
    name: str
    ok: bool
    text: str
    exit_code: int | None = None
    untrusted: bool = False
    labels: list[str] = []
    before: list[dict[str, Any]] = []
    stopped: bool = False


class AnswerPart(Struct, omit_defaults=True):
    """The decision on an approval: `decision` and the rest are those of `approval.resolved`."""

    call: str
    decision: str
    by: str
    scope: str | None = None
    arguments: dict[str, Any] | None = None
    note: str | None = None
    door: str | None = None


class SteeringPart(Struct, omit_defaults=True):
    """A message that came while the run was under way, in this round, once it had made so many `requests`.

    `message` is the one of the history; None is a text without attachments.
    """

    round: int
    text: str
    requests: int = 1
    message: dict[str, Any] | None = None


class Recording(Struct, kw_only=True, omit_defaults=True):
    """`begin` is None where only the log is known; `missing` says in words what cannot be compared then.

    Where `is_whole` is False the run went on after what is recorded, and is compared up to there.
    `history` are the messages before the run, `compacted` what was left of them in requests, if not all; `said` are
    those that it began with. `frames` are digests of what the lane's client received, an event each. `is_recorded`: it
    is more than what a log says.
    """

    made_by: str
    run: RunPart
    begin: Begin | None = None
    history: list[dict[str, Any]] = []
    compacted: CompactedState | None = None
    said: list[dict[str, Any]] = []
    requests: list[RequestPart] = []
    rest: Since = field(default_factory=Since)
    results: list[ResultPart] = []
    answers: list[AnswerPart] = []
    steering: list[SteeringPart] = []
    events: list[dict[str, Any]] = []
    frames: list[str] = []
    missing: list[str] = []
    is_recorded: bool = True
    is_whole: bool = True

    def __post_init__(self) -> None:
        for number, event in enumerate(self.events, 1):
            needed = {"type"} | NEEDED.get(str(event.get("type")), set())
            if lacks := needed - event.keys():
                raise ValueError(f"event {number} has no {', '.join(sorted(lacks))}")

    @property
    def decided(self) -> list[Decided]:
        """The decisions on calls, in their order."""
        return [*(one for part in self.requests for one in part.since.decided), *self.rest.decided]


def written(recording: Recording) -> str:
    """Return the file of a recording, readable and the same for the same recording."""
    content = msgspec.to_builtins(recording)
    head = {"format": FORMAT, "version": VERSION, "sum": _sum(content)}
    return _pretty(head | content, 0) + "\n"


def _pretty(value: Any, depth: int) -> str:
    """Return JSON in lines: a field each, and lists of plain values in one."""
    indent = "\n" + " " * (depth + 1)
    if len(line := json.dumps(value)) <= LONGEST_LINE:
        return line
    match value:
        case dict() if value:
            fields = (f"{json.dumps(name)}: {_pretty(one, depth + 1)}" for name, one in value.items())
            return f"{{{indent}{f',{indent}'.join(fields)}{indent[:-1]}}}"
        case list() if any(isinstance(one, dict | list) for one in value):
            return f"[{indent}{f',{indent}'.join(_pretty(one, depth + 1) for one in value)}{indent[:-1]}]"
    return line


def read_recording(text: str | bytes, name: str) -> Recording:
    """Return the recording of a file, which is called so in errors. Raises UnusableRecording."""
    try:
        fields = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UnusableRecording(f"{name} is no whole JSON ({error}). Export the run again.") from error
    if not isinstance(fields, dict) or fields.pop("format", None) != FORMAT:
        raise UnusableRecording(f"{name} is no recording of a run: `dragoman export-test RUN` writes one.")
    version = fields.pop("version", None)
    if type(version) is not int or version > VERSION:
        raise UnusableRecording(f"{name} has version {version!a}, and this dragoman reads {VERSION}. Upgrade it.")
    try:
        if fields.pop("sum", None) != _sum(fields):
            raise UnusableRecording(
                f"{name} was changed since it was written. Take the file as it was, or export the run again; "
                "`dragoman replay --accept` writes what a run does now."
            )
        return msgspec.convert(fields, Recording)
    except (msgspec.ValidationError, RecursionError) as error:
        raise UnusableRecording(f"{name} cannot be read: {error}. Export the run again.") from error


def read_file(path: Path) -> Recording:
    """Raises UnusableRecording."""
    try:
        with path.open("rb") as file:
            content = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise UnusableRecording(f"{path} cannot be read: {error.strerror}.") from error
    if len(content) > MOST_BYTES:
        raise UnusableRecording(f"{path} has more than {MOST_BYTES:,} bytes.")
    return read_recording(content, str(path))


def redacted(recording: Recording, redactor: Redactor) -> Recording:
    """Return a recording without what has become a secret since it was stored."""
    return msgspec.convert(redactor.redact_value(msgspec.to_builtins(recording)), Recording)


def _sum(content: dict[str, Any]) -> str:
    return sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]
