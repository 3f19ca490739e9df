"""A session's history while a run is under way: every message is kept as it is appended."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection

from app.messages import AskedCall, Message, unanswered

STOPPED = "This call was stopped before it finished; what it had done by then is unknown."
INTERRUPTED = "The server stopped while this call ran; its outcome is unknown. Check before doing it again."
NOT_RUN = "This call was not run: its run ended first."


class Conversation:
    """The messages of one session. `keep(position, message)` stores each new one, `stored()` waits until it is."""

    def __init__(
        self,
        session: str,
        messages: list[Message],
        keep: Callable[[int, Message], None],
        stored: Callable[[], Awaitable[None]],
    ) -> None:
        self.session = session
        self.messages = messages
        self.stored = stored
        self._keep = keep
        self._started: set[str] = set()

    def append(self, message: Message) -> None:
        self._keep(len(self.messages), message)
        self.messages.append(message)

    def answer(self, call: AskedCall, text: str) -> None:
        self.append(Message("tool", text, call=call.id, name=call.name))

    def begin(self, call: AskedCall) -> None:
        """From here on nobody knows what the call has done until it is answered."""
        self._started.add(call.id)

    def settle(self, unknown: str, started: Collection[str] = ()) -> None:
        """Answer every call that is still open, so that the history stays valid.

        `unknown` is told of calls that had been started, here or (`started`) before a crash.
        """
        for call in list(unanswered(self.messages)):
            begun = call.id in self._started or call.id in started
            self.answer(call, unknown if begun else NOT_RUN)
