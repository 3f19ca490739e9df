"""What the agent knows of a model: one Protocol, and the pieces that its stream is made of."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol, Self

from app.core.messages import Message, Sealed
from parsing import BadCall, Call, CallDelta, CallOpened, Thought
from tools.tool import Tool


@dataclass(frozen=True, slots=True)
class Said:
    """Raw text of the model, markup and all: it goes through the parser."""

    text: str


@dataclass(frozen=True, slots=True)
class Used:
    """Tokens of this request, as the server counted them.

    Of the prompt's tokens, which are all that the model has read, `cached` were read before, and `cache_written` are
    kept for later at a price of their own; None where the server does not say. Without any token nothing is counted.
    """

    prompt_tokens: int
    completion_tokens: int
    cached: int | None = None
    cache_written: int | None = None


TOO_LONG = "too_long"  # why an answer ends that is longer than may be heard


@dataclass(frozen=True, slots=True)
class Stopped:
    """Why the model stopped (`stop`, `length`, `tool_calls`, ...), or TOO_LONG: the last piece of a whole stream."""

    reason: str


@dataclass(frozen=True, slots=True)
class Enclosed:
    """What goes back to the model's server with the native call `index`, or with the whole reply."""

    sealed: Sealed
    index: int | None = None


@dataclass(frozen=True, slots=True)
class Told:
    """What a person should know while the model has not answered yet: it becomes a Notice."""

    code: str
    message: str


@dataclass(frozen=True, slots=True)
class Switched:
    """Another model answers than the one that was wanted; both as `endpoint/model`. It comes before any answer."""

    wanted: str
    answered_by: str
    reason: str


# Reasoning fields arrive as Thought; native tool calls as the parser's own CallOpened, CallDelta, Call, BadCall.
Piece = Said | Thought | CallOpened | CallDelta | Call | BadCall | Enclosed | Used | Told | Switched | Stopped


class ProviderFailed(Exception):
    """The model's server could not answer. The message says what to do next.

    `status` is that of its HTTP answer, if there was one, `retry_after_s` the time that it asks to wait.
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
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.retryable = retryable
        self.window = window  # tokens that the model can read, where the server says so in refusing a prompt
        self.status = status
        self.retry_after_s = retry_after_s


ReadFile = Callable[[str], Awaitable[bytes]]


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """One round's question. `tools` are offered natively, if the provider can; else `opening` teaches them.

    `opening` gives the messages in front of the conversation. It is asked when the request is made, because a server
    that refuses native tools is asked again, with a prompt that teaches them.
    """

    messages: Sequence[Message]
    tools: Sequence[Tool] = ()
    max_tokens: int | None = None
    temperature: float | None = None
    opening: Callable[[], Sequence[Message]] = tuple
    inactivity_s: float | None = None  # how long the model may be silent, if not as long as the provider allows
    left_s: float | None = None  # of the run's time: nobody waits longer than that to ask again
    key: str | None = field(default=None, repr=False)  # to use instead of the provider's own
    read: ReadFile | None = None  # gives the bytes of an attachment by its SHA-256
    describe_files: bool = False  # a model that cannot see an attachment is told of it in words
    afford: Callable[[], None] = field(default=lambda: None, repr=False)  # asked once it is known who will answer

    def whole(self) -> list[Message]:
        return [*self.opening(), *self.messages]


Source = Literal["setting", "server", "answer", "name", "unknown"]
"""How something is known of a model: it was set, its server says so, an answer showed it, its name suggests it."""


@dataclass(frozen=True, slots=True)
class Ability:
    """Something known of a model: `tools`, `images`, `pdf`, `window`, ...; `value` is None while `source` is unknown.

    `detail` names the place where it was learned, such as `/props`.
    """

    name: str
    value: bool | int | str | None
    source: Source
    detail: str = ""


class Provider(Protocol):
    """A model to talk to.

    `native_tools` says that tools are offered to it beside the messages, `teach_fences` that the prompt teaches them.
    Both, as long as nobody knows what it can.
    """

    @property
    def model(self) -> str: ...

    @property
    def native_tools(self) -> bool: ...

    @property
    def teach_fences(self) -> bool: ...

    @property
    def calls_natively(self) -> bool:
        """Whether the operator says that it calls its tools natively: then its text holds no calls."""
        ...

    @property
    def leaves_calls(self) -> bool:
        """Whether its server is known to leave in the text what it could not read as native calls."""
        ...

    def stream(self, request: ModelRequest) -> AsyncGenerator[Piece, None]:
        """The answer, piece by piece. Raises ProviderFailed; closing the generator closes the model's request."""
        ...

    async def window(self) -> int | None:
        """Tokens that the model can read and write at a time, if its server says so. Never raises."""
        ...

    async def count_tokens(self, texts: Sequence[str]) -> list[int] | None:
        """Tokens of each text, if the server counts them. Never raises."""
        ...

    def added(self, message: Message) -> str:
        """What the message carries over the wire besides its own text and native calls: frame, time, reminder."""
        ...

    def prompt_suffix(self) -> str:
        """What the model's template writes in front of its answer, as far as that is known: a hint for the parser."""
        ...

    def abilities(self) -> Sequence[Ability]:
        """What is known of the model by now, for people."""
        ...

    def show(self, name: str, value: bool | str, detail: str) -> None:
        """An answer has shown this ability; `detail` says how."""
        ...

    def cost(self, used: Used) -> float | None:
        """What so many tokens cost, in the money of the price table; None for a model without a price.

        Of the model that answers now or has answered last; before the first request, of the one that will be asked.
        """
        ...

    @property
    def answers(self) -> str:
        """That model, as `endpoint/model`; empty if it is just `model`."""
        ...

    @property
    def reached(self) -> bool:
        """Whether a model may have read that request: not while it waits in a line, or to be asked again."""
        ...

    def apart(self) -> Self:
        """The same models, for requests beside others: what is said above of the last one is each one's own."""
        ...

    async def close(self) -> None: ...


class Plain:
    """The part of a Provider that knows nothing of its model."""

    @property
    def native_tools(self) -> bool:
        return False

    @property
    def calls_natively(self) -> bool:
        return False

    @property
    def leaves_calls(self) -> bool:
        return False

    async def window(self) -> int | None:
        return None

    async def count_tokens(self, texts: Sequence[str]) -> list[int] | None:
        return None

    def added(self, message: Message) -> str:
        return ""

    def prompt_suffix(self) -> str:
        return ""

    def abilities(self) -> Sequence[Ability]:
        return ()

    def show(self, name: str, value: bool | str, detail: str) -> None:
        """It is not remembered."""

    def cost(self, used: Used) -> float | None:
        return None

    @property
    def answers(self) -> str:
        return ""

    @property
    def reached(self) -> bool:
        return True

    def apart(self) -> Self:
        return self
