"""The interface to a model: one Protocol, and the pieces of its stream."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from enum import StrEnum
from typing import Any, Literal, Protocol, Self

from msgspec import Struct, field

from app.core.messages import Message, OpaqueMetadata
from parsing import BadCall, Call, CallDelta, CallOpened, Thought
from parsing.templates.derive import TemplateGrammar
from tools.base.hidden_fields import repr_without
from tools.tool import Tool


class TextChunk(Struct, frozen=True):
    """Raw text of the model, markup and all: it goes through the parser."""

    text: str


class TokenUsage(Struct, frozen=True):
    """Tokens of this request, as the server counted them.

    Of the prompt's tokens, which are all that the model has read, `cached` were read before, and `cache_written` are
    kept for later at a price of their own; None where the server does not say. Without any token nothing is counted.
    """

    prompt_tokens: int
    completion_tokens: int
    cached: int | None = None
    cache_written: int | None = None


REPLY_CHANGED = "reply_changed"  # the code of a notice: what a model wrote cannot go back to it as it was
TOO_LONG = "too_long"  # the reason of an answer that reached the limit of its length


class Finished(Struct, frozen=True):
    """The stop reason (`stop`, `length`, `tool_calls`, ...), or TOO_LONG: the last piece of a stream."""

    reason: str


class MetadataChunk(Struct, frozen=True):
    """Opaque data that goes back to the server with the native call `index`, or with the whole reply."""

    sealed: OpaqueMetadata
    index: int | None = None


class CallId(Struct, frozen=True):
    """The id that the server `origin` gave the native call `index`; before the call's other pieces if it is known."""

    index: int
    id: str
    origin: str


class PictureChunk(Struct, frozen=True):
    """A picture that the model returns."""

    data: bytes

    __repr__ = repr_without("data")


class ProviderNotice(Struct, frozen=True):
    """A message for the person while the model has not answered yet: it becomes a Notice, with the same fields."""

    code: str
    message: str
    retry_at: float | None = None
    wanted: str | None = None
    reason: str | None = None
    attempt: int | None = None
    attempts: int | None = None


class FallbackUsed(Struct, frozen=True):
    """Another model answers than the one that was wanted; both as `endpoint/model`. It comes before any answer."""

    wanted: str
    answered_by: str
    reason: str


# Reasoning fields arrive as Thought; native tool calls as the parser's own CallOpened, CallDelta, Call, BadCall.
Piece = (
    TextChunk
    | Thought
    | CallOpened
    | CallDelta
    | Call
    | BadCall
    | MetadataChunk
    | CallId
    | PictureChunk
    | TokenUsage
    | ProviderNotice
    | FallbackUsed
    | Finished
)


class ProviderFailed(Exception):
    """The model's server could not answer. The message says what to do next.

    `status` is that of its HTTP answer, if there was one, `retry_after_s` the time that it asks to wait. `successor`:
    another model can go on with the answer, which broke off. `cause` says in a few words what is wrong, without advice.
    """

    def __init__(
        self,
        code: str,
        message: str,
        *,
        retryable: bool,
        window: int | None = None,
        status: int | None = None,
        retry_after_s: float | None = None,
        successor: FallbackUsed | None = None,
        cause: str = "",
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.retryable = retryable
        self.window = window  # tokens that the model can read, where the server says so in refusing a prompt
        self.status = status
        self.retry_after_s = retry_after_s
        self.successor = successor
        self.cause = cause


ReadFile = Callable[[str], Awaitable[bytes]]
TextPiece = TextChunk | Thought
NotePrompt = Callable[[str, Sequence[str]], None]
"""Take note of a prompt that goes out: the model at its server, and the prompt as JSON, part by part."""
TakeText = Callable[[TextPiece], bool]
"""Take a piece at once, or return False and change nothing."""


async def _nothing() -> None:
    """Nothing is limited."""


class ModelRequest(Struct, frozen=True):
    """The request of one round. `tools` are offered natively, if the provider can; else `opening` teaches them.

    `opening` gives the messages in front of the conversation. It is called for each attempt, because a server that
    refuses native tools gets a second one, with a prompt that teaches them.

    With `verbatim` the messages go to the server as they are: no times, delimiters or reminders are added. `parameters`
    are those of a client, in the words of chat completions; `max_tokens` and `temperature` stand in for its own.

    With `go_on` the last reply, which broke off, is to be continued. It is the reminder that asks for that, behind the
    reply; a server that can continue a message does without it. Empty: there is none, and no other server will do.

    `stage` is how many messages of the session a summary replaces, and how often the others were trimmed; None for a
    prompt that is not the conversation's.
    """

    messages: Sequence[Message]
    tools: Sequence[Tool] = ()
    max_tokens: int | None = None
    temperature: float | None = None
    opening: Callable[[], Sequence[Message]] = tuple
    inactivity_s: float | None = None  # longest silence of the model; None for the provider's
    left_s: float | None = None  # time left of the run, which limits the wait before a retry
    key: str | None = None  # to use instead of the provider's own
    read: ReadFile | None = None  # reads an attachment by its SHA-256
    describe_files: bool = False  # replace attachments by descriptions for a model that cannot see them
    afford: Callable[[], Awaitable[None]] = _nothing  # called once the answering model is known
    # Takes text in the callback that reads it; what it refuses, and all other pieces, the stream yields.
    take_text: TakeText | None = None
    verbatim: bool = False
    go_on: str | None = None
    parameters: Mapping[str, Any] = field(default_factory=dict)
    traceparent: str = ""  # a header of W3C Trace Context; empty for none
    stage: tuple[int, int] | None = None
    note_prompt: NotePrompt | None = None  # called for each attempt

    __repr__ = repr_without("key", "afford", "take_text", "note_prompt")

    @property
    def has_attachments(self) -> bool:
        return any(True for message in self.messages if message.attachments)  # not a step for each: there may be many

    def whole(self) -> list[Message]:
        return [*self.opening(), *self.messages]


Source = Literal["setting", "server", "answer", "name", "unknown"]
"""The source of an ability: it was set, reported by the server, shown by an answer, or suggested by the name."""


class Ability(Struct, frozen=True):
    """An ability of a model: `tools`, `images`, `pdf`, `window`, ...; `value` is None while `source` is unknown.

    `detail` names where it was found, such as `/props`.
    """

    name: str
    value: bool | int | str | None
    source: Source
    detail: str = ""


class CallForm(StrEnum):
    """The form of calls that the prompt teaches a model; NATIVE teaches none, because the request offers the tools.

    TAGGED is JSON between tags, which nobody means as an answer. FENCED is a block of code with the tool's name, which
    small models write more easily; a block in an answer that only shows code cannot be told from it, so it is a call
    only for the models that are taught it.
    """

    NATIVE = "native"
    TAGGED = "tagged"
    FENCED = "fenced"


class Provider(Protocol):
    """A model to talk to. What a method returns here is the answer of one that knows nothing of its model.

    `native_tools`: tools are offered in the request; `call_form`: what the prompt teaches besides. While the abilities
    of the model are unknown, tools are offered and TAGGED is taught.
    """

    @property
    def model(self) -> str: ...

    @property
    def native_tools(self) -> bool:
        return False

    @property
    def call_form(self) -> CallForm: ...

    @property
    def calls_natively(self) -> bool:
        """True if the operator has set that it calls its tools natively: then its text holds no calls."""
        return False

    @property
    def leaves_calls(self) -> bool:
        """True if its server is known to leave calls in the text that it could not parse."""
        return False

    @property
    def continues(self) -> bool:
        """True if its server is known to go on with a message of the model that has not ended."""
        return False

    def stream(self, request: ModelRequest) -> AsyncGenerator[Piece, None]:
        """The answer, piece by piece. Raises ProviderFailed; closing the generator closes the model's request."""
        ...

    async def window(self) -> int | None:
        """The context window in tokens, if its server reports it. Never raises."""
        return None

    async def count_tokens(self, texts: Sequence[str]) -> list[int] | None:
        """Tokens of each text, if the server counts them. Never raises."""
        return None

    def added(self, message: Message) -> str:
        """The text that a message has in the request besides its own: delimiters, time, reminder."""
        return ""

    def prompt_suffix(self) -> str:
        """The text that the model's template writes in front of its answer, if it is known: a hint for the parser."""
        return ""

    def grammar(self) -> TemplateGrammar | None:
        """The grammar of its calls that was derived from its template, where no dialect of the table reads them."""
        return None

    def abilities(self) -> Sequence[Ability]:
        """The abilities of the model that are known by now, for display."""
        return ()

    def ability(self, name: str) -> Ability:
        """One of them; of the source `unknown` if it is not among them."""
        return next((one for one in self.abilities() if one.name == name), Ability(name, None, "unknown"))

    def show(self, name: str, value: bool | str, detail: str) -> None:
        """Record an ability that an answer has shown; `detail` says how."""
        return

    def cost(self, used: TokenUsage) -> float | None:
        """The cost of the tokens, in the currency of the prices; None for a model without a price.

        The prices are those of the last model that answered; before the first request, of the first candidate.
        """
        return None

    @property
    def answers(self) -> str:
        """The name of that model, as `endpoint/model`; empty if it is just `model`."""
        return ""

    @property
    def reached(self) -> bool:
        """True if a model may have read the request: false while it is queued or in backoff."""
        return True

    def apart(self) -> Self:
        """The same models for concurrent requests, with a state of the last request of its own."""
        return self

    async def close(self) -> None: ...


def name_of(provider: Provider) -> str:
    """Return the name of the model that answers or answered last, with its endpoint's name if known."""
    return provider.answers or provider.model


class BaseProvider(Provider):
    """A base of providers, without knowledge of the model."""

    model = ""
