"""The hand-over from plain coroutines to the consumer of an async generator.

`await emitter.emit(item)` suspends the coroutine, and all that await it, until the consumer of `emitter.stream(...)`
asks for the next item. So the consumer sets the pace, nothing is buffered, items keep the order in which they were
emitted, and no coroutine has to pass on what another one yields.

There is no task and no queue between the two sides: the coroutine runs in the consumer's own task, and `stream` drives
it as asyncio drives a task. A future that it awaits comes out of `send()` and is passed on to the event loop; the
emitter itself says that there is an item for the consumer. So a coroutine below two streams can emit to either.
Cancelling the consumer's task, and every other exception, reaches the coroutine where it waits.

Closing the generator, or throwing an exception into it, raises StreamClosed, a CancelledError, in the coroutine's
`emit`. It is not GeneratorExit because that closes nested coroutines without letting them await anything (PEP 380), and
closing a model's connection has to be awaited.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator
from contextlib import suppress
from types import coroutine
from typing import Any, Generic, TypeVar

Item = TypeVar("Item")
Emit = Callable[[Item], Awaitable[None]]
Steps = Coroutine[Any, Any, None]


class StreamClosed(asyncio.CancelledError):
    """The consumer has closed the stream: the coroutine ends, as a cancelled one does."""


class Emitter(Generic[Item]):
    """Items from the coroutine that `stream` drives. A task that this coroutine starts cannot use `emit`."""

    __slots__ = ("_closed", "_item")
    _item: Item

    def __init__(self) -> None:
        self._closed = False

    @coroutine
    def emit(self, item: Item) -> Generator[object, None, None]:
        """Hand `item` over and wait until the consumer asks for the next one."""
        self._item = item
        yield self
        if self._closed:
            raise StreamClosed

    async def stream(self, body: Callable[[], Steps]) -> AsyncGenerator[Item, None]:
        """Yield what `body()` emits, and raise what it raises. Use it once, with `aclosing`."""
        steps = body()
        del body  # with what it holds
        while True:
            try:
                step = steps.send(None)
            except StopIteration:
                return
            if step is not self and not await _Forwarded(self, steps, step):
                return
            try:
                yield self._item
            except BaseException:
                self._closed = True
                with suppress(StreamClosed):
                    if await _Forwarded(self, steps, self):
                        raise RuntimeError("An item was emitted although the stream was closed.") from None
                raise


class _Forwarded(Generator[Any, Any, bool | None]):
    """An awaitable that runs a coroutine up to its next item (True) or its end (None).

    What the coroutine awaits is awaited by the task that awaits this. `step` is the last that the coroutine has taken;
    unless it is the `mark` of an item, it has to be awaited first.
    """

    __slots__ = ("_mark", "_step", "_steps")

    def __init__(self, mark: object, steps: Steps, step: object) -> None:
        self._mark = mark
        self._steps = steps
        self._step = step

    def __await__(self) -> Generator[Any, Any, bool | None]:
        return self

    def __next__(self) -> Any:
        step, self._step = self._step, self._mark
        return self._checked(self._steps.send(None)) if step is self._mark else step

    def send(self, value: None) -> Any:
        return next(self)

    def throw(self, *error: Any) -> Any:
        return self._checked(self._steps.throw(*error))

    def _checked(self, step: object) -> object:
        if step is self._mark:
            raise StopIteration(True)
        return step
