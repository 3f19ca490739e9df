"""What the agent knows of a model: one Protocol, and the pieces that its stream is made of."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from app.messages import Message, Sealed
from parsing import BadCall, Call, CallDelta, CallOpened, Thought
from tools.tool import Tool


@dataclass(frozen=True, slots=True)
class Said:
    """Raw text of the model, markup and all: it goes through the parser."""

    text: str


@dataclass(frozen=True, slots=True)
class Used:
    """Tokens of this request, as the server counted them; `cached` are those of the prompt that it had read before."""

    prompt_tokens: int
    completion_tokens: int
    cached: int | None = None


@dataclass(frozen=True, slots=True)
class Stopped:
    """Why the model stopped (`stop`, `length`, `tool_calls`, ...): the last piece of a whole stream."""

    reason: str


@dataclass(frozen=True, slots=True)
class Enclosed:
    """What goes back to the model's server with the native call `index`, or with the whole reply."""

    sealed: Sealed
    index: int | None = None


# Reasoning fields arrive as Thought; native tool calls as the parser's own CallOpened, CallDelta, Call, BadCall.
Piece = Said | Thought | CallOpened | CallDelta | Call | BadCall | Enclosed | Used | Stopped


class ProviderFailed(Exception):
    """The model's server could not answer. The message says what to do next."""

    def __init__(self, code: str, message: str, *, retryable: bool, window: int | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.retryable = retryable
        self.window = window  # tokens that the model can read, where the server says so in refusing a prompt


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

    def whole(self) -> list[Message]:
        return [*self.opening(), *self.messages]


class Provider(Protocol):
    """A model to talk to. `teach_fences` says that it needs to be taught tool calls in the prompt."""

    model: str
    teach_fences: bool

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

    async def close(self) -> None: ...


class Uncounted:
    """The part of a Provider that knows nothing of the model's window and tokens."""

    async def window(self) -> int | None:
        return None

    async def count_tokens(self, texts: Sequence[str]) -> list[int] | None:
        return None

    def added(self, message: Message) -> str:
        return ""
