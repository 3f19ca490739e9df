"""A lane as a row: how its requests are read, and how the log of a run becomes its frames or its whole answer.

A request names the model that it wants. `dragoman/agent` and `dragoman/MODEL` are the agent: its tools, context and
sessions behind the client's format. Any other name is relayed: one round of that model, nothing added, and each of its
tool calls, in whatever dialect, arrives as a native call of the client's tools.

An encoder gets every event of a run from the first one on, so that its frames depend on the request and the log alone.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Literal, Protocol

from msgspec import Struct, field

from app.core.attachments import File
from app.core.messages import Message
from app.policy.doors import Door
from app.runs.run_options import ClientTool
from app.storage.principals import Principal
from app.storage.runs import EventRow
from routes.lanes.answer import Answer
from routes.protocol.errors import Refused
from routes.protocol.route import Body, Shape
from routes.services import Services


class Verdict(Struct, frozen=True):
    """A person's decision, through the client, on a call that waits for approval. `note` is for the model."""

    call: str
    approved: bool
    arguments: dict[str, Any] | None = None
    note: str | None = None


class LaneRequest(Struct, kw_only=True):
    """A request, read. `messages` is the conversation as the client knows it, oldest first, new turn included.

    `files` are the pictures and PDFs that the messages refer to. `parameters` are those of chat completions, under
    their names there: in a relay they go on to the model's server. `previous` is the run that the conversation goes on
    from, `thread` the client's own name for it; without both it is found by its messages. `run` is the client's name
    for one request of its thread: a request that repeats it returns to the run, and `received` are the texts and
    arguments that its client has of that, by their ids. `echo` is what the lane's answers repeat of the request.
    `untrusted`: it holds text of third parties beside its messages.
    """

    model: str | None
    messages: list[Message]
    files: list[File] = field(default_factory=list)
    tools: list[ClientTool] = field(default_factory=list)
    parameters: dict[str, Any] = field(default_factory=dict)
    stream: bool = False
    previous: str | None = None
    thread: str | None = None
    run: str = ""
    received: dict[str, str] = field(default_factory=dict)
    conversation: str | None = None  # its key, which is not of the lane alone: its session goes on
    branches: bool = False  # from an earlier point of the thread, where `messages` end
    verdicts: Sequence[Verdict] = ()
    asks: bool = False  # the client can show approvals and send verdicts
    store: bool = False  # keep the run, to be read again under its id
    background: bool = False
    compact: Callable[..., Awaitable[list[Message]]] | None = None  # returns what the model is asked for a summary
    untrusted: bool = False
    echo: dict[str, Any] = field(default_factory=dict)

    def set_conversation(self, key: str) -> None:
        """Let a key say which conversation goes on, instead of the thread of the client. Raises Refused."""
        if self.conversation not in (None, key):
            raise Refused(422, "invalid_request", "conversation is another one than X-Dragoman-Conversation names")
        self.conversation, self.thread, self.branches = key, None, False


class Turn(Struct, frozen=True):
    """A run of a lane. `created` is Unix time in seconds, `model` the name that the client used.

    `after` is the number of the event that ended an earlier stream of the run: this one begins behind it. With
    `decided` the client has returned, and gets the run from its beginning; questions up to that event were decided.
    """

    run: str
    session: str
    created: int
    model: str
    request: LaneRequest
    after: int = 0
    decided: int | None = None


class Encoder(Protocol):
    """One per stream. `over`: nothing follows for this client, although the run may go on (it waits for approval)."""

    @property
    def over(self) -> bool: ...

    def frames(self, row: EventRow) -> str:
        """The SSE blocks of one event, each with its empty line; an empty text for none. ASCII."""
        ...


ReadRequest = Callable[[Mapping[str, Any]], LaneRequest]
"""Reads a body. Raises Refused with the lane's own `param` where a field is wrong."""
Whole = Callable[[Answer, Turn], dict[str, Any]]
"""The JSON of an answer that is not streamed."""
ErrorBody = Callable[[Refused], tuple[int, dict[str, Any] | str]]
"""The status and the JSON of an error, or its plain text where the client shows the body to a person as it is."""

Prepare = Callable[[Services, Principal, Mapping[str, Any]], Awaitable[Mapping[str, Any]]]
"""Completes a body with what the server keeps, before it is read. Raises Refused."""


class Lane(Struct, frozen=True):
    """`about`, `body` and `answer` describe its route, as in `routes.protocol.route`. Its verdicts come by `door`.

    `parting` is the end of a stream whose run has none yet (its server stops, or has lost its lease), lest its client
    takes half an answer for all of it.
    """

    name: str
    path: str
    read: ReadRequest
    encoder: Callable[[Turn], Encoder]
    whole: Whole
    error: ErrorBody
    parting: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    prepare: Prepare | None = None
    door: Door = "api"
    disconnect: Literal["cancel", "continue"] = "cancel"  # of its clients, if the setting does not say
    about: str = ""
    body: Body | None = None
    answer: Shape | None = None

    def goes_on(self, setting: str) -> bool:
        """Return True if a run goes on without its client."""
        return (self.disconnect if setting == "default" else setting) == "continue"

    @property
    def example(self) -> Mapping[str, Any]:
        """A request of this lane."""
        return self.body.example if self.body else {}


def stream_only(_: Answer, __: Turn) -> dict[str, Any]:
    """The `whole` of a lane whose reader makes every request a stream."""
    raise NotImplementedError
