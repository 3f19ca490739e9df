"""The events of a run: one frozen struct per event, its wire name written out.

The same names and fields are the SSE stream's public surface: `event:` is `type`, `data:` all the fields.
"""

from __future__ import annotations

import json
from json.encoder import encode_basestring_ascii as quoted
from typing import Any, ClassVar, get_args

from msgspec import Struct
from msgspec.structs import astuple

from app.core.document_events import (
    DocumentChanged,
    DocumentDelta,
    DocumentFinished,
    DocumentStarted,
    DocumentSuggested,
)
from app.core.helper_events import HelperApproval, HelperFinished, HelperStarted


class RunStarted(Struct, frozen=True):
    """The run has started: its model, the names of the offered `tools`, and its `limits`.

    `limits` holds `max_rounds`, `max_calls`, `max_tokens`, `time_limit_s`, `tool_time_limit_s`, `approval`, `sandbox`,
    `when_absent` where it is `deny`, and `terminal`, the columns and rows of its commands' terminals (`120x40`); limits
    that do not apply are left out. `profiles` are those in force, each with `name`, `version` and the `source` that
    named it (`token`, `session` or `request`). `source` is there if the run is one call that no model makes: of a
    client of the MCP server (`mcp`), or of an MCP app (`app`).
    """

    type: ClassVar[str] = "run.started"
    run: str
    session: str
    model: str
    tools: list[str]
    limits: dict[str, float | str]
    profiles: list[dict[str, str]] | None = None
    source: str | None = None


class RoundStarted(Struct, frozen=True):
    """A request to the model begins; the first round is 1."""

    type: ClassVar[str] = "round.started"
    round: int


class TextDelta(Struct, frozen=True):
    """A piece of the answer's text. A call that is a block of code is text as well, once it is whole.

    Such a block has the id of its `call`, so that a client that shows the call leaves the block out.
    """

    type: ClassVar[str] = "text.delta"
    text: str
    call: str | None = None


class ReasoningDelta(Struct, frozen=True):
    """A piece of the model's reasoning, which is not part of the answer."""

    type: ClassVar[str] = "reasoning.delta"
    text: str


class TextReclassified(Struct, frozen=True):
    """The last `characters` Unicode code points of the text so far were reasoning: `reasoning.delta` repeats them.

    That the model had been thinking is known only when it closes the thought that its prompt template opened. A call
    that it drafted there follows as `tool.rejected`; it was not run.
    """

    type: ClassVar[str] = "text.reclassified"
    characters: int


class MessageAdded(Struct, frozen=True):
    """A message that was sent to the running run is in its history now, with its attachments if it has any."""

    type: ClassVar[str] = "message.added"
    text: str
    attachments: list[dict[str, Any]] | None = None


class ToolDelta(Struct, frozen=True):
    """A piece of a call's arguments as the model writes them; `name` comes with the first piece of a call."""

    type: ClassVar[str] = "tool.delta"
    call: str
    text: str
    name: str | None = None


class ToolStarted(Struct, frozen=True):
    """A call runs, with its final `arguments`. `dialect` is `native`, or the dialect that the model wrote it in."""

    type: ClassVar[str] = "tool.started"
    call: str
    name: str
    arguments: dict[str, Any]
    dialect: str


class ToolProgress(Struct, frozen=True):
    """Output of a running call: at most 5 events a second, at least one every 2 s.

    `tail` holds the last lines, at most 12, as a terminal would show them: carriage returns and cursor moves are
    applied, and each line has its own colours (SGR sequences). `lines` counts the lines of that screen and above it,
    `bytes` all output so far. `input` is true for a call with a terminal, which takes input, `hidden` while its program
    reads a password, `screen` while it draws on the whole screen, as an editor does: the tail shows only some of it,
    `asks` while the last line looks like a question that it waits to have answered.
    """

    type: ClassVar[str] = "tool.progress"
    call: str
    elapsed_s: float
    tail: list[str]
    lines: int
    bytes: int
    input: bool | None = None
    hidden: bool | None = None
    screen: bool | None = None
    asks: bool | None = None


class ToolTask(Struct, frozen=True):
    """A call goes on at its MCP `server` as the `task` of this id: one event at first, and one with each new `status`.

    `status` is `working`, `input_required`, `completed`, `failed` or `cancelled`, `since` the Unix time when it began,
    `poll_s` how often the server asks to be polled, `ttl_s` how long it keeps the task.
    """

    type: ClassVar[str] = "tool.task"
    call: str
    server: str
    task: str
    status: str
    since: float
    message: str | None = None
    poll_s: float | None = None
    ttl_s: float | None = None


class ToolFinished(Struct, frozen=True):
    """The result of a call. `text` is what the model receives; `exit_code` is set for processes that were not stopped.

    `lines` and `bytes` count all that a process wrote, if that is more than the model receives of a result.
    A call that is stopped with its run ends in this event, too, if it had printed something. `advice` is the end of
    `text` that is for the model alone: people are shown what is before it. `structured` is the same as JSON, if no
    model has made the call and the tool gives it.
    """

    type: ClassVar[str] = "tool.finished"
    call: str
    name: str
    ok: bool
    text: str
    duration_s: float
    exit_code: int | None = None
    lines: int | None = None
    bytes: int | None = None
    advice: str | None = None
    structured: Any = None


class ToolApp(Struct, frozen=True):
    """An app of an MCP server shows the result of a call, which `tool.finished` has before it.

    `file` and `result` are files of the session (`GET /sessions/{id}/files/{sha256}`): the page as it was then, and the
    whole result as JSON. `csp` are the domains that an admin has allowed (`connectDomains`, `resourceDomains`,
    `frameDomains`, `baseUriDomains`; the page gives an app the first two); `border` is the page's wish.
    """

    type: ClassVar[str] = "tool.app"
    call: str
    name: str
    server: str
    uri: str
    file: str
    result: str
    csp: dict[str, list[str]]
    border: bool | None = None


class ToolRejected(Struct, frozen=True):
    """A call that could not be parsed, may not run, came twice (natively and in the text), or was only thought.

    `code` is the row of the table of decisions that refused it, as the audit names it without the name of a hook;
    `unreadable` for a call that could not be parsed. Other rejections, such as that of a person, have none. `advice`
    is the end of `reason` that is for the model alone; of a person's decision it is the whole.
    """

    type: ClassVar[str] = "tool.rejected"
    reason: str
    call: str | None = None
    name: str | None = None
    code: str | None = None
    advice: str | None = None


class ToolHanded(Struct, frozen=True):
    """A call of one of the client's own tools, complete. The client runs it and sends its result with its next turn.

    The run ends with the reason `client_tools` when all calls of the reply that the server runs have been answered.
    `written` are the arguments of a native call as the model wrote them, where that is another JSON text.
    """

    type: ClassVar[str] = "tool.handed"
    call: str
    name: str
    arguments: dict[str, Any]
    dialect: str
    written: str | None = None


class FileChanged(Struct, frozen=True):
    """A file of the workspace is another after a call: `change` is `created`, `modified` or `deleted`.

    `path` is relative to the workspace, `size` in bytes, `kind` the media type by its content. A deleted file has none
    of them, a very large one no `sha256`. `unkept` is why an undo of the run leaves the file as it is, where it does.
    `runs_at` is the usual command of the owner's that runs the file on their machine, outside of the sandbox: `make`,
    or `git` for a new folder of a repository, which has the kind `inode/directory`. At most 32 for a call, those with a
    command first; a notice counts the rest.
    """

    type: ClassVar[str] = "file.changed"
    call: str
    path: str
    change: str
    size: int | None = None
    sha256: str | None = None
    kind: str | None = None
    unkept: str | None = None
    runs_at: str | None = None


class ImageReturned(Struct, frozen=True):
    """A picture that a call has returned, or, without `call`, the model itself.

    `GET /sessions/{id}/files/{sha256}` has its bytes. `size` is in bytes, `width` and `height` in pixels. A model that
    can see is shown it with its next request.
    """

    type: ClassVar[str] = "image"
    sha256: str
    media_type: str
    size: int
    call: str | None = None
    width: int | None = None
    height: int | None = None


class ApprovalRequired(Struct, frozen=True):
    """A call waits for a person, until `expires_at` (Unix time; null: without a limit).

    `origins`, if there are any, are the parts of its arguments that repeat a text which the model has read: the JSON
    pointer of the text (`argument`) and the characters from `start` to `end` in it, the `kind` of the source (`person`,
    `operator`, `client`, `result`, `memory`, `document`, `file`, `session` or `model`), its `place` in words, the id of
    the `source` where it has one (of a result, its call), `untrusted` if that text is, and `exact` if it stands there
    to the letter or is the same number or address.
    `proposals`: standing permissions that can be given with the approval, as `pattern` and `words`.
    """

    type: ClassVar[str] = "approval.required"
    call: str
    name: str
    arguments: dict[str, Any]
    reason: str
    expires_at: float | None
    origins: list[dict[str, Any]] | None = None
    proposals: list[dict[str, Any]] | None = None


class ApprovalResolved(Struct, frozen=True):
    """The decision on a waiting call: `approved`, `denied`, `expired` or `withdrawn`.

    `by` is the principal, `door` the way by which a person's decision came: `page`, `push`, `terminal`, `acp`, `api`,
    `responses`, `ag-ui`, `ui-messages`, `mcp` or `link`. `scope` is `once`, `session` or `always`; `arguments` are set
    if the person changed them, `note` if one was given.
    """

    type: ClassVar[str] = "approval.resolved"
    call: str
    decision: str
    by: str
    scope: str | None = None
    arguments: dict[str, Any] | None = None
    note: str | None = None
    door: str | None = None


class Notice(Struct, frozen=True):
    """Something a person should know; the run goes on. The codes are listed below.

    With the code `fallback`, `answered_by` is the model that answers instead of the one that was `wanted`, and `reason`
    says why; with `continued`, the same if another model goes on with the answer. With the code `retry`, `retry_at`
    (Unix time) is when the model `wanted` is asked again, for the `attempt`th time of at most `attempts`; `reason` is
    the cause of the failure, absent where the model only limits requests. With `context`, `attempt` is there, too.
    """

    type: ClassVar[str] = "notice"
    code: str
    message: str
    wanted: str | None = None
    answered_by: str | None = None
    reason: str | None = None
    retry_at: float | None = None
    attempt: int | None = None
    attempts: int | None = None


class ContextTrimmed(Struct, frozen=True):
    """From here on the model receives less: `dropped` messages are left out, `shortened` ones are cut.

    `before` and `after` are tokens of the conversation.
    """

    type: ClassVar[str] = "context.trimmed"
    dropped: int
    shortened: int
    before: int
    after: int


class ContextSummarised(Struct, frozen=True):
    """From here on the model reads a summary in place of the first `messages` messages of the session.

    `before` and `after` are tokens of those messages and of the summary.
    """

    type: ClassVar[str] = "context.summarised"
    messages: int
    before: int
    after: int


class DocumentUpdated(Struct, frozen=True):
    """A code block of more than 30 lines as a document, if the setting `documents` is on.

    `text` is the new part, which is also in `text.delta`; `language` comes with the first part, `done` with the last.
    So does `title`, if the document is kept with the conversation, which has the first 100 of up to 200,000 characters.
    """

    type: ClassVar[str] = "document.updated"
    document: str
    text: str
    language: str | None = None
    done: bool | None = None
    title: str | None = None


class PlanUpdated(Struct, frozen=True):
    """The plan of the model: all its steps, at most 40, in place of those before.

    Each step has its text, `step`, and its `state`: `pending`, `active` or `done`.
    """

    type: ClassVar[str] = "plan"
    steps: list[dict[str, str]]


class LabelsAdded(Struct, frozen=True):
    """The conversation has these labels from here on, besides those that it had.

    `source` says why: `mark`, `path`, `server`, `memory`, `content` or `call`; `call` is the call that brought them.
    """

    type: ClassVar[str] = "labels.added"
    labels: list[str]
    source: str
    call: str | None = None


class Usage(Struct, frozen=True):
    """Tokens of one round, and totals of the run so far; `measured` is false if they are estimated.

    `cached_tokens` is the part of the prompt that the server had cached, if it reports that. `cost` is that of the
    round, `total_cost` that of the run so far, for models with a price. `timing` of a round holds `preparation_s`
    (context fitted, which took `context_s` of it, then budget reserved and hooks run), `first_token_s` (from the
    request to the first token, queue and retries included) and `tokens_per_s` (from the first token on; left out if the
    answer came at once). That of a run's first round also holds the steps before it that took more than a millisecond:
    `prompt_s` (files for the system text read), `tools_s` (MCP servers awaited, tools chosen), `recall_s` (memory).

    `prompt_bytes` are those of the tools, the system text and the messages in the request, and the first `prefix_bytes`
    of them are the same as in the session's round before, which servers read from their caches. `prefix_break` says why
    the rest is another, if anything of that request is missing: `first` (none came before, as far as this server
    remembers), `side_query` (a question beside the conversation), `other_model`, `tools` and `system` (other tools, or
    another system text), `summarised` and `trimmed` (older messages became a summary, or were shortened or dropped),
    `reminder` (the request before ended with a note for it alone), `edited` (an earlier message is another, as when a
    text of it has become a secret). Relayed requests have none of the three: their clients keep the conversation.
    """

    type: ClassVar[str] = "usage"
    prompt_tokens: int
    completion_tokens: int
    total_prompt_tokens: int
    total_completion_tokens: int
    measured: bool
    cached_tokens: int | None = None
    cost: float | None = None
    total_cost: float | None = None
    timing: dict[str, float] | None = None
    prompt_bytes: int | None = None
    prefix_bytes: int | None = None
    prefix_break: str | None = None


class RunFinished(Struct, frozen=True):
    """The run has ended without an error; `reason` is one of the codes listed below.

    `text` is the final answer, at most 200,000 characters of it; in front of it stand the blocks of code that were
    calls. `calls` counts the calls that ran or were handed to the client, not those that were refused. `usage` holds
    the totals of the run; its `timing` has the sum of the preparation, the first token of the first round, and the
    tokens a second of all rounds.
    """

    type: ClassVar[str] = "run.finished"
    reason: str
    text: str
    rounds: int
    calls: int
    usage: dict[str, Any]


class RunFailed(Struct, frozen=True):
    """The run has ended with an error. `message` says what to do next; `retryable` that trying again later may help."""

    type: ClassVar[str] = "run.failed"
    code: str
    message: str
    retryable: bool


AgentEvent = (
    RunStarted
    | RoundStarted
    | TextDelta
    | ReasoningDelta
    | TextReclassified
    | MessageAdded
    | ToolDelta
    | ToolStarted
    | ToolProgress
    | ToolTask
    | ToolFinished
    | ToolApp
    | ToolRejected
    | ToolHanded
    | FileChanged
    | ImageReturned
    | ApprovalRequired
    | ApprovalResolved
    | Notice
    | ContextTrimmed
    | ContextSummarised
    | DocumentUpdated
    | DocumentStarted
    | DocumentDelta
    | DocumentFinished
    | DocumentChanged
    | DocumentSuggested
    | HelperStarted
    | HelperApproval
    | HelperFinished
    | PlanUpdated
    | LabelsAdded
    | Usage
    | RunFinished
    | RunFailed
)
Delta = TextDelta | ReasoningDelta | ToolDelta | DocumentDelta
TERMINAL = frozenset({RunFinished.type, RunFailed.type})


def _fields(kind: type[Struct]) -> list[tuple[str, bool]]:
    """The names of an event's fields, with True for those without a default."""
    required = len(kind.__struct_fields__) - len(kind.__struct_defaults__)
    return [(name, at < required) for at, name in enumerate(kind.__struct_fields__)]


_FIELDS = {kind: _fields(kind) for kind in get_args(AgentEvent)}


def fields_of(event: AgentEvent) -> dict[str, Any]:
    """The event as the JSON object of its `data:` line; optional fields that are None are left out."""
    data = {"type": event.type}
    for (name, is_required), value in zip(_FIELDS[type(event)], astuple(event), strict=True):
        if value is not None or is_required:
            data[name] = value
    return data


def encode(event: AgentEvent) -> str:
    """The `data:` line's JSON, ASCII only: lone surrogates and U+2028 in a model's words must not break a client."""
    if type(event) is TextDelta:  # nearly every event is one: a template costs a tenth of a dict
        block = f'"call": {quoted(event.call)}, ' if event.call else ""  # first: the text of others is all of the rest
        return f'{{"type": "text.delta", {block}"text": {quoted(event.text)}}}'
    return json.dumps(fields_of(event))


class Encoded(Struct, frozen=True):
    """An event whose JSON has been made: `data` is its `data:` line."""

    type: str
    data: str
