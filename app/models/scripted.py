"""Scripted model for tests, demos and benchmarks: replays given replies without a server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator, Sequence

from msgspec import Struct
from msgspec.structs import replace

from app.core.provider import BaseProvider, CallForm, Finished, ModelRequest, Piece, ProviderFailed, TextChunk
from parsing import Call, Thought


class Pause(Struct, frozen=True):
    """Pause the reply until `event` is set."""

    event: asyncio.Event


class Raise(Struct, frozen=True):
    """Fail at this point of the reply."""

    failure: ProviderFailed


Line = Piece | Pause | Raise | str
Reply = Sequence[Line] | str

DEMO: tuple[Reply, ...] = (
    ("I ask the shell.\n\n", "```bash\n", 'echo "Hello, World!"\n', "```\n"),
    ("The shell printed ", "Hello, World!"),
)


class Scripted(BaseProvider):
    """A Provider. Each request takes the next reply; strings become TextChunk, and a missing Finished is added.

    `requests` are those it was given, `unfinished` counts the streams that were closed before their end. With `repeat`
    the replies start over when they are used up; without, a further request fails.
    """

    call_form = CallForm.FENCED

    def __init__(
        self,
        replies: Sequence[Reply],
        model: str = "scripted",
        *,
        call_form: CallForm = CallForm.FENCED,
        repeat: bool = False,
    ) -> None:
        self.model = model
        self.call_form = call_form
        self.requests: list[ModelRequest] = []
        self.unfinished = 0
        self.closed = False
        self._replies = list(replies)
        self._repeat = repeat

    @property
    def native_tools(self) -> bool:
        return self.call_form is CallForm.NATIVE

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Piece, None]:
        """The next reply, line by line. Raises ProviderFailed where the script says so, or has ended."""
        lines = self._next(request)
        self.unfinished += 1
        for line in lines:
            await asyncio.sleep(0)  # a real model is never there at once, and others must have their turn
            match line:
                case Pause(event):
                    await event.wait()
                case Raise(failure):
                    self.unfinished -= 1
                    raise failure
                case _:
                    yield line
        self.unfinished -= 1

    async def close(self) -> None:
        self.closed = True

    def _next(self, request: ModelRequest) -> list[Piece | Pause | Raise]:
        taken = len(self.requests)
        # A copy: the history goes on growing after the request was made.
        self.requests.append(replace(request, messages=tuple(request.messages), tools=tuple(request.tools)))
        if self._repeat and self._replies:
            taken %= len(self._replies)
        if taken >= len(self._replies):
            message = f"The script has {len(self._replies)} replies and all were given: add one, or use repeat=True."
            raise ProviderFailed("script_ended", message, retryable=False)
        return list(ended(self._replies[taken]))


def ended(reply: Reply) -> Iterator[Piece | Pause | Raise]:
    """Return the reply with strings as TextChunk, and with a Finished at its end."""
    called = stopped = False
    for line in [reply] if isinstance(reply, str) else reply:
        called = called or isinstance(line, Call)
        stopped = isinstance(line, Finished | Raise)
        match line:
            case Thought():  # a string too, of its own kind
                yield line
            case str():
                yield TextChunk(line)
            case _:
                yield line
    if not stopped:
        yield Finished("tool_calls" if called else "stop")
