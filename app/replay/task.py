"""A run of a replay: what it is made of in place of the store and the log's writer."""

from __future__ import annotations

from collections.abc import Callable

from app.core.messages import Message
from app.log.event_writer import NO_LISTENERS, Listeners, RunLog
from app.redaction.redactor import Redactor
from app.runs.recovery.history import conversation_of
from app.runs.run_task import RunTask
from app.storage.changes import Change
from app.transcript.conversation import Conversation


class ReplayWriter:
    """A LogWriter that keeps nothing: the log has what was added to it."""

    full = False

    def __init__(self, redactor: Redactor, *, documents: bool) -> None:
        self.redactor = redactor
        self.documents = documents

    def open_log(self, run: str, on_failure: Callable[[], None], listeners: Listeners = NO_LISTENERS) -> RunLog:
        return RunLog(run, self, on_failure, listeners)

    def announce(self, log: RunLog, *, hurries: bool = True) -> None:
        """There are no watchers."""

    async def flush(self) -> None:
        """Nothing is stored."""

    async def room(self) -> None:
        """There is always room."""


class ReplayTask(RunTask):
    """A run that begins with the messages that it began with then."""

    history: list[Message]
    said: list[Message]

    async def _turn(self) -> Conversation:
        conversation = conversation_of(self.row, self.history, _ignore, self.journal, self.log.add)
        conversation.begins = len(self.history)
        for message in self.said:
            conversation.append(message)
        if recorder := self.agent.scope.recorder:
            conversation.recorder = recorder
        return conversation


def _ignore(_: Change) -> None:
    """Nothing is stored."""
