"""A session's history while a run is under way: every message is kept as it is appended."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from types import MappingProxyType

from msgspec.structs import replace

from app.core.attachments import PDF, File
from app.core.data_delimiters import new_code
from app.core.events import AgentEvent
from app.core.messages import AskedCall, Message, unanswered
from app.core.recorder import Recorder
from app.redaction.redactor import Redactor
from app.storage.changes import Change
from app.storage.files.store import FileRow, SessionFile
from app.transcript.document_drafts import DocumentDrafts
from app.transcript.run_request import CallResult
from tools.base.access import RemoteTask

STOPPED = "This call was stopped before it finished; what it had done by then is unknown."
INTERRUPTED = "The server stopped while this call ran; its outcome is unknown. Check before doing it again."
NOT_RUN = "This call was not run: its run ended first."
NO_RESULT = "No result: this call was handed to the client, which has not sent its result."


def _as_it_is(message: Message) -> Message:
    return message


class Conversation:
    """The messages of one session.

    `keep(position, message)` stores each new one, `record(change)` whatever else belongs with it, `stored()` waits
    until they are. `log_event(event)` adds an event to the run's log at once, for code that runs beside the run's task.
    Secrets are hidden from the model as well: what it does not know it cannot give away. `begins` is the position of
    the first message of the run under way (`run`). `redacted`: the messages are it already.
    """

    _started: frozenset[str] = frozenset()
    _handed: frozenset[str] = frozenset()
    logged_tasks: Mapping[str, RemoteTask] = MappingProxyType({})  # by the calls that became tasks of MCP servers

    def __init__(
        self,
        session: str,
        messages: list[Message],
        keep: Callable[[int, Message], None],
        record: Callable[[Change], None],
        stored: Callable[[], Awaitable[None]],
        *,
        redactor: Redactor,
        log_event: Callable[[AgentEvent], None] = lambda _: None,
        clock: Callable[[], float] = time.time,
        begins: int = 0,
        run: str = "",
        redacted: bool = False,
    ) -> None:
        self.session = session
        self.run = run
        self.begins = begins
        self.messages = messages if redacted else [*map(redactor.redact_value, messages)]
        self.record = record
        self.recorder: Recorder | None = None  # of the run under way, if that is recorded
        self.watch: Callable[[Message], Message] = _as_it_is  # each message before it is kept
        self.stored = stored
        self.log_event = log_event
        self._keep = keep
        self._clock = clock
        self.redactor = redactor
        self.secrets = redactor.secrets  # how many there were when the messages were redacted
        self.logged_starts: Collection[str] = ()  # calls that the server before had started
        self.goes_on = False  # the run under way ends here, and the next server goes on with it
        self.drafts = DocumentDrafts(run)
        self._stopped: dict[str, tuple[str, bool]] = {}

    def keep_nothing(self) -> None:
        """Store no message from now on: what follows is beside the conversation, and no model reads it."""
        self._keep = lambda position, message: None

    def append(self, message: Message) -> None:
        message = self.watch(self._marked(self.redactor.redact_value(message)))
        self._keep(len(self.messages), message)
        self.messages.append(message)

    def _marked(self, message: Message) -> Message:
        """With what it keeps for ever: a person's words their time, a result the code of its frame.

        It is untrusted if a document is attached: a person seldom has written what that says.
        """
        if not message.untrusted and any(one.media_type == PDF or one.text for one in message.attachments):
            message = replace(message, untrusted=True, sender=message.sender or "person")
        match message:
            case Message(role="user", at=None):
                return replace(message, at=self._clock())
            case Message(role="tool", code=""):
                return replace(message, code=new_code(message.text))
        return message

    def answer(
        self,
        call: AskedCall,
        text: str,
        *,
        untrusted: bool = False,
        pictures: Sequence[File] = (),
        labels: Collection[str] = (),
    ) -> None:
        """Add the result of a call, and store its pictures with it."""
        for file in pictures:
            self.keep_file(file)
        attachments = tuple(file.attachment for file in pictures)
        result = Message("tool", text, call=call.id, name=call.name, untrusted=untrusted, attachments=attachments)
        self.append(replace(result, labels=tuple(sorted(labels))) if labels else result)

    def keep_file(self, file: File) -> None:
        """Store a file that a message is going to name."""
        self.record(FileRow(file.attachment.sha256, file.data))
        self.record(SessionFile(self.session, file.attachment.sha256))

    def begin(self, call: AskedCall) -> bool:
        """From here on nobody knows what the call has done until it is answered. False if the log has its start."""
        self._started |= {call.id}
        return call.id not in self.logged_starts

    def hand_over(self, call: str) -> None:
        """Leave the call with this id open at the end of this run: the client answers it with its next turn."""
        self._handed |= {call}

    def keep_stopped(self, call: str, text: str, *, untrusted: bool) -> None:
        """Answer a call that was stopped with this text, in its turn, when the open calls are answered (`settle`)."""
        self._stopped[call] = text, untrusted

    def take_results(self, results: Sequence[CallResult]) -> list[str]:
        """Answer calls that were handed over; return the calls of results that no open call waits for."""
        if not results:
            return []
        open_calls = {call.id: call for call in unanswered(self.messages)}
        unknown = list[str]()
        for result in results:
            if call := open_calls.pop(result.call, None):
                self.answer(call, result.text, untrusted=True)
            else:
                unknown.append(result.call)
        return unknown

    def settle_stopped(self) -> None:
        """Answer the calls whose text is known (`keep_stopped`), and those before them, which were stopped as well."""
        open_calls = list(unanswered(self.messages))
        last = max((at for at, call in enumerate(open_calls) if call.id in self._stopped), default=-1)
        for call in open_calls[: last + 1]:
            text, untrusted = self._stopped.get(call.id, (STOPPED, False))
            self.answer(call, text, untrusted=untrusted)

    def settle(self, unknown: str, started: Collection[str] = (), handed: Collection[str] = ()) -> None:
        """Answer every call that is still open, so that the history stays valid.

        `unknown` is the answer of calls that had been started, here or (`started`) in an earlier run or before a crash.
        Calls that this run has handed over stay open; earlier runs had `handed` others over.
        """
        for call in [call for call in unanswered(self.messages) if call.id not in self._handed]:
            begun = call.id in self._started or call.id in started
            text = unknown if begun else NO_RESULT if call.id in handed else NOT_RUN
            text, untrusted = self._stopped.get(call.id, (text, False))
            self.answer(call, text, untrusted=untrusted)
