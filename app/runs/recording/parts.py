"""The parts of a recording, as they are stored beside a run's log: compressed JSON, a row each.

A run begins with a `Begin`; each model request is a `RequestPart`, which has what was decided since the one before. The
pieces of an answer keep the borders that they came with, and their times. In place of secrets they have stand-ins
(`app.runs.recording.stand_ins`).
"""

from __future__ import annotations

import json
import zlib
from typing import Any, TypeVar

import msgspec
from msgspec import Struct, field

from app.context.compaction.replay import CompactedState
from app.core.provider import CallForm
from app.policy.secret_rights import SecretRight
from app.storage.runs import RecordingRow
from parsing.templates.probes import Probe
from tools.base.rights import Approval, Column, Risk, Role
from tools.tool import BOTH

BEGIN, HISTORY, REQUEST, END, CUT, FRAMES = "begin", "history", "request", "end", "cut", "frames"  # kinds of rows
LANE = "recorded_lane"  # in the policy of a run: the request of the lane that it came through
LATE = "late"  # the code of an answer that took longer than was waited for
MOST_PART = 1 << 26  # bytes of one, unpacked
Part = TypeVar("Part")


class Words(Struct, tag="text", tag_field="is", omit_defaults=True):
    """Text that came in pieces of these `sizes` (characters), each so many milliseconds (`ms`) after the one before."""

    text: str
    sizes: list[int]
    ms: list[int]


class Reasoning(Words, tag="thought", tag_field="is"):
    """The same of reasoning."""


class CallText(Words, tag="call_text", tag_field="is", kw_only=True):
    """The same of a native call's arguments."""

    index: int


class Opened(Struct, tag="call_opened", tag_field="is"):
    index: int
    name: str


class Made(Struct, tag="call", tag_field="is"):
    """A native call, whole."""

    index: int
    name: str
    arguments: dict[str, Any]
    dialect: str
    repairs: list[str] = []


class Unreadable(Struct, tag="bad_call", tag_field="is"):
    index: int
    raw: str
    reason: str


class Identified(Struct, tag="call_id", tag_field="is"):
    index: int
    id: str
    origin: str


class Used(Struct, tag="usage", tag_field="is", omit_defaults=True):
    prompt: int
    completion: int
    cached: int | None = None
    cache_written: int | None = None


class Noted(Struct, tag="notice", tag_field="is"):
    code: str
    message: str


class StoodIn(Struct, tag="fallback", tag_field="is"):
    wanted: str
    answered_by: str
    reason: str


class Ended(Struct, tag="end", tag_field="is"):
    reason: str


class Failed(Struct, tag="failed", tag_field="is", omit_defaults=True):
    """The request failed; `code` is that of the error, `cancelled`, `budget`, or LATE.

    `successor`: another model could go on with the answer.
    """

    code: str
    message: str = ""
    retryable: bool = False
    window: int | None = None
    status: int | None = None
    successor: StoodIn | None = None


Item = Words | Reasoning | CallText | Opened | Made | Unreadable | Identified | Used | Noted | StoodIn | Ended | Failed


class Counting(Struct, frozen=True, omit_defaults=True):
    """The state of the token counter: window, scales, and exact counts by the digest of a message."""

    window: int
    whole: float = 1.0
    texts: float = 1.0
    counts: dict[str, float] = field(default_factory=dict)
    described: int = 0  # tokens of the offered tools


class Held(Struct, omit_defaults=True):
    """The messages of a request: role, characters and digest of each; `same`: so many are those of the one before.

    `tools` are those offered in the request, if they are others than before; `most` is its limit of tokens.
    """

    same: int = 0
    messages: list[tuple[str, int, str]] = []
    tools: list[str] | None = None
    most: int | None = None


class Decided(Struct, omit_defaults=True):
    """A decision on a call: `allow`, `ask` or `refuse`, by a row of the table of decisions. `limits`: of labels."""

    call: str
    name: str
    decision: str
    by: str
    why: str = ""
    limits: dict[str, Any] | None = None


class Since(Struct, omit_defaults=True):
    """The decisions since the request before: ids that were drawn, decisions, results with secrets.

    And all grants, or all permissions, that were there after one was given.
    """

    ids: list[str] = []
    decided: list[Decided] = []
    grants: list[list[dict[str, Any]]] = []
    permissions: list[list[dict[str, Any]]] = []
    results: dict[str, str] = {}


class ModelPart(Struct, omit_defaults=True):
    """The model, as far as it was known when the run began."""

    name: str
    answers: str = ""
    native_tools: bool = False
    call_form: CallForm = CallForm.NATIVE
    calls_natively: bool = False
    leaves_calls: bool = False
    suffix: str = ""
    abilities: list[tuple[str, Any, str]] = []
    probes: list[Probe] = []  # that a grammar was derived from


class HistoryPart(Struct):
    """The compacted history of the session that the run began with, where not all messages were sent any more."""

    state: CompactedState


class RequestPart(Struct, omit_defaults=True):
    """One model request, of a round or (`side`) of a side query; `at`: seconds since the run began."""

    at: float
    held: Held
    items: list[Item]
    since: Since
    side: bool = False
    counting: Counting | None = None
    opening: list[dict[str, Any]] | None = None  # where it is another than before
    form: CallForm = CallForm.NATIVE
    taught: bool = True  # the opening is for a request with tools
    model: ModelPart | None = None  # where something else was known of it afterwards


class ToolPart(Struct, omit_defaults=True):
    """A tool that is none of our own, as it was classified."""

    name: str
    description: str
    parameters: dict[str, Any]
    role: Role
    risk: Risk
    approval: Approval = "mode"
    confined: bool = False
    untrusted: bool = False
    through: str = ""
    origin: tuple[str, str] | None = None
    columns: dict[str, Column] = {}
    destructive: bool = False
    visibility: tuple[str, ...] = BOTH


class PrincipalPart(Struct):
    name: str
    role: Role
    tools: list[str]
    disabled: list[str]
    profile: str


class Begin(Struct, omit_defaults=True):
    """The world that the run began in. `settings`: those that decide and are not at their defaults.

    `sources` are texts of others in the prompt, each with its place. `listed`: the tools that were offered, `hidden`
    those of servers that are found by a search. `relay`: the parameters of a client whose request was relayed.
    """

    made_by: str
    principal: PrincipalPart
    settings: dict[str, Any]
    workspace: str
    sandbox: str
    boxed: bool
    networked: bool
    way_out: str
    model: ModelPart
    tools: list[ToolPart]
    built_in: list[str]
    hidden: list[str]
    listed: list[str]
    sources: list[tuple[str, str]]
    grants: list[dict[str, Any]] = []
    permissions: list[dict[str, Any]] = []
    at: float = 0.0  # the time, by which rules that allow are in force
    wrote: float | None = 0.0  # the time of the last write before; None: no grant is later
    disabled: list[str] = []
    tainted: bool = False
    secrets: list[SecretRight] = []
    relay: dict[str, Any] | None = None
    lacking: dict[str, str] = {}  # tools that the settings could have added, and what a call of one was answered
    given: list[str] = []  # texts beside the conversation whose values are the person's own


def packed(run: str, at: int, kind: str, part: object) -> RecordingRow:
    try:
        text = msgspec.json.encode(part)
    except UnicodeEncodeError:  # half of a character, as models write them
        text = json.dumps(msgspec.to_builtins(part)).encode()
    return RecordingRow(run, at, kind, zlib.compress(text, 6))


def unpacked(row: RecordingRow, kind: type[Part]) -> Part:
    """Return the part of a row. Raises ValueError for one that is damaged, or of a newer version."""
    try:
        unpacking = zlib.decompressobj()
        text = unpacking.decompress(row.data, MOST_PART)
        if unpacking.unconsumed_tail:
            raise ValueError(f"The recording of run {row.run} has a part of more than {MOST_PART} bytes.")
        return read_json(text, kind)
    except zlib.error as error:
        raise ValueError(f"The recording of run {row.run} cannot be read: {error}.") from error


def read_json(text: bytes | str, kind: type[Part]) -> Part:
    """Return JSON as a struct of this type. Raises ValueError, which names the place."""
    try:
        return msgspec.json.decode(text, type=kind)
    except msgspec.ValidationError:
        raise
    except msgspec.DecodeError:  # it may have halves of characters, which the standard library takes
        try:
            return msgspec.convert(json.loads(text), kind)
        except RecursionError as error:
            raise ValueError("it is nested too deeply") from error
