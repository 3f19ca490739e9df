"""A session's history while a run is under way: every message is kept as it is appended."""

from __future__ import annotations

from collections.abc import Callable

from app.messages import AskedCall, Message, unanswered


class Conversation:
    """The messages of one session. `keep(position, message)` makes each new one durable."""

    def __init__(self, session: str, messages: list[Message], keep: Callable[[int, Message], None]) -> None:
        self.session = session
        self.messages = messages
        self._keep = keep

    def append(self, message: Message) -> None:
        self._keep(len(self.messages), message)
        self.messages.append(message)

    def answer(self, call: AskedCall, text: str) -> None:
        self.append(Message("tool", text, call=call.id, name=call.name))

    def settle(self, outcome: str) -> None:
        """Answer every call that is still open, so that the history stays valid: `outcome` says what is known."""
        for call in list(unanswered(self.messages)):
            self.answer(call, outcome)
