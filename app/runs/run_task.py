"""One run under way: a task from its turn in the session to its one terminal event, whatever happens."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing, suppress
from dataclasses import InitVar, dataclass, field

from msgspec.structs import replace

from app.budget.budgets import RequestDenied
from app.budget.kinds import BudgetSpent
from app.checkpoints.report import UNDONE_NOTICE, undone_message
from app.context.overflow import ContextOverflow
from app.core.attachments import File
from app.core.events import TERMINAL, AgentEvent, ApprovalResolved, Notice, RunFailed, RunFinished, TextDelta
from app.core.messages import Message
from app.core.provider import ProviderFailed
from app.core.time_slice import sliced
from app.documents.news import News, news_of
from app.log.event_writer import Listeners, LogWriter, RunLog
from app.log.unlisted_log import UnlistedLog
from app.memory.beside import Beside, recalled_beside
from app.memory.extraction import leave_job
from app.policy.approvals import CALL_ENDED, Approvals, resolution_event
from app.policy.gate import Gate
from app.policy.grants import grant_of
from app.runs.agent import Agent
from app.runs.discipline.fallback_answer import GO_ON, answer_of, fallback_answer
from app.runs.discipline.run_terminals import Audience
from app.runs.recording.recorder import StoredParts
from app.runs.recovery.history import EarlierCalls, conversation_of, earlier_calls
from app.runs.recovery.left_off import ABANDONED, RESUMED, RETURN, SUSPENDED, LeftOff
from app.runs.session_queue import SessionQueue
from app.storage.approvals import ApprovalDecided
from app.storage.changes import StoreFailed
from app.storage.files.store import FileRow, SessionFile
from app.storage.runs import InboxTaken, KeyRow, RunBegan, RunEnded, RunRow
from app.storage.sessions import AppContextRead, SessionState
from app.storage.store import Store
from app.transcript.conversation import INTERRUPTED, STOPPED, Conversation
from app.transcript.inbox import Inbox, added, message_of
from app.transcript.own_words import names_of
from app.transcript.recent_histories import RecentHistories
from app.transcript.run_request import CARRIES, HELPER, KNOWN, TIED, RunRequest, as_sent, has_mark, is_of_app, sender_of
from app.transcript.timings import RECALL
from tools.base.pause_check import Paused

logger = logging.getLogger(__name__)
SHORTEST_LOOK_S = 1.0  # between two looks at the time of a run that waits for a person
SPOKEN = frozenset({"deadline", "budget"})
UNKNOWN_CALL = "Results were sent for calls that do not wait for one: {calls}. They are left out."
MOST_NAMED = 5
APP_CONTEXT = "The app has given the model data for this turn. They are untrusted."
BROKEN = "Internal error (see the server log). You can continue the session."


@dataclass(slots=True)
class RunTask:
    """A run that has not ended. It is stopped at most once: a second cancel must not cut the first one's cleaning up.

    queued ---> running ---> ended        (`row.state` in the store; the terminal event says how it ended)
      |            ^
      +-- its turn-+     stop() from any of them leads to the end

    With the reason SUSPENDED it stays as it is in the store, and its log open, for the next server.
    """

    row: RunRow
    agent: Agent
    store: Store
    histories: RecentHistories
    journal: LogWriter
    line: SessionQueue
    approvals: Approvals
    time_limit_s: float
    listeners: InitVar[Listeners]
    log: RunLog = field(init=False)
    inbox: Inbox = field(init=False)
    task: asyncio.Task[None] | None = None
    begun: bool = False  # a task cancelled before its first step runs nothing
    stopping: str | None = None  # why
    conversation: Conversation | None = None
    left: LeftOff | None = None  # of a run that goes on after a restart
    held: Callable[[], Awaitable[None]] | None = None  # waited for before it goes on
    turn: RunRequest | None = None  # until it is in the history; None if the run goes on after a restart
    _timer: asyncio.TimerHandle | None = None
    replies_from: int = 0  # the position behind what the run began with
    begins_session: bool = False  # with which there is nothing to be found yet
    audience: Audience = field(init=False)

    def __post_init__(self, listeners: Listeners) -> None:
        self.log = self.journal.open_log(self.row.id, self._fail, listeners)
        self.audience = Audience(was_there=self.left is not None)  # those of the server before have left it
        self.inbox = Inbox(self.row.id, self.log.put)

    def _fail(self) -> None:
        self.stop("storage_failed")

    def post(self, text: str, files: Sequence[File] = (), *, untrusted: bool = False) -> None:
        """A message, and in the same transaction the files that it names. Raises InboxClosed, InboxFull."""
        self.inbox.post(text, [file.attachment for file in files], untrusted=untrusted)
        self.keep(files)

    def keep(self, files: Sequence[File]) -> None:
        """Store files that messages of the session name."""
        for file in files:
            self.log.put(FileRow(file.attachment.sha256, file.data))
            self.log.put(SessionFile(self.row.session, file.attachment.sha256))

    @property
    def is_unlisted(self) -> bool:
        """Return True if neither the run nor its session is kept."""
        return isinstance(self.log, UnlistedLog)

    @property
    def waits(self) -> bool:
        """Return True if all it waits for is a person."""
        return self.approvals.is_waiting(self.row.id)

    @property
    def may_go_on(self) -> bool:
        """Return True if another server can go on with it: all that this takes is stored."""
        if self.is_unlisted or not self.agent.takes_messages or has_mark(self.row, HELPER) or is_of_app(self.row):
            return False
        is_stored = self.conversation is not None or self.left is not None or CARRIES not in self.row.policy
        return self.waits or (is_stored and not has_mark(self.row, TIED))

    def take_up(self, left: LeftOff, held: Callable[[], Awaitable[None]]) -> None:
        """Go on where the run was when its server ended, once nothing holds it."""
        self.held = held
        self.log.go_on(left.last_seq, left.drafts)
        self.inbox.restore(left.inbox)
        if left.turn:
            self.left, self.turn = None, left.turn
        if left.calls.asked and left.calls.asked.state == "pending":
            self.approvals.reopen(left.calls.asked)
        if self.row.state != "queued":
            self.log.add(left.notice or Notice(RESUMED, left.words))
        for row in left.questions:
            self.log.put(ApprovalDecided(row.run, row.call, "withdrawn", time.time(), CALL_ENDED))
            self.log.add(ApprovalResolved(row.call, "withdrawn", CALL_ENDED))

    @property
    def gate(self) -> Gate:
        return self.agent.scope.gate

    def stop(self, why: str) -> None:
        """End it: the terminal event will be RunFinished with `why` as its reason."""
        if self.task and not self.stopping:
            self.stopping = why
            if self.conversation:
                self.conversation.goes_on = why in (SUSPENDED, ABANDONED)
            self.task.cancel()

    async def drive(self) -> None:
        """The task's body. Never raises."""
        terminal: AgentEvent | None = None
        self.begun = True
        try:
            self.conversation = await self._turn()
            self._start_clock()
            terminal = await self._iterate(self.conversation)
        except asyncio.CancelledError:
            terminal = self._stopped(self.stopping or "cancelled")
        except Paused:
            terminal = self.agent.finished("paused", self.conversation)
        except BudgetSpent as spent:
            self.log.add(Notice("budget", str(spent)))
            terminal = self._stopped("budget", str(spent))
        except ProviderFailed as failure:
            terminal = RunFailed(failure.code, failure.message, failure.retryable)
        except RequestDenied as denied:
            terminal = RunFailed("hook_denied", str(denied), retryable=False)
        except ContextOverflow as overflow:
            terminal = RunFailed("context_overflow", str(overflow), retryable=False)
        except StoreFailed as failure:
            terminal = RunFailed("storage_failed", str(failure), retryable=True)
        except Exception:
            logger.exception("run %s failed with an internal error", self.row.id)
        finally:
            self.stopping = self.stopping or "ended"
            if self._timer:
                self._timer.cancel()
            if self.stopping == ABANDONED:
                self.log.abandon()
            elif self.stopping == SUSPENDED:
                await self._leave()
            else:
                await self._end(terminal or RunFailed("internal", BROKEN, retryable=True))

    def _start_clock(self) -> None:
        if self._timer is None:
            self.agent.discipline.enter(self.time_limit_s)
            self._watch_deadline()

    def _watch_deadline(self) -> None:
        """Stop the run when its time is over; the time in which it waits for a person does not count."""
        left_s = self.agent.discipline.left_s() or 0.0
        if left_s <= 0:
            self.stop("deadline")
            return
        waits = self.approvals.is_waiting(self.row.id) or self.approvals.has_question(self.row.id)
        waits = waits or self.agent.discipline.stands_still
        after_s = max(left_s, SHORTEST_LOOK_S) if waits else left_s
        self._timer = asyncio.get_running_loop().call_later(after_s, self._watch_deadline)

    async def _turn(self) -> Conversation:
        """The complete history of the session, once no other run of it is active; enters the session's state."""
        if self.held:
            await self.held()
        if self.row.state == "queued" and not self.left:
            await self._wait()
        state = SessionState() if self.begins_session else await self.histories.state(self.row.session)
        begins = self.left.begins if self.left else None
        conversation = conversation_of(
            self.row, state.messages, self.log.put, self.journal, self.log.add, begins=begins, redacted=True
        )
        if recorder := self.agent.scope.recorder:
            recorder.enter(StoredParts(self.row.id, self.log.put).keep)
            conversation.recorder = recorder
        if (labels := self.agent.scope.labels) is not None:
            await labels.enter(conversation, self.turn.labels if self.turn else ())
        if (marks := self.agent.scope.marks) is not None:
            self.turn = await marks.enter(conversation, self.turn)
        if is_of_app(self.row):
            conversation.keep_nothing()
        elif not self.left:  # else it is as it was, with calls to answer
            await self._screen_results(conversation)
            results = self.turn.results if self.turn else ()
            is_new = self.begins_session
            earlier = EarlierCalls() if is_new else await earlier_calls(self.store, self.row, state.messages, results)
            news = await news_of(self.agent.scope.documents, self.row.session)
            beside = await self._recalled()
            await self._begin(conversation, state, earlier, undone=await self._undone(), news=news, beside=beside)
        self.replies_from = conversation.begins if self.left else len(conversation.messages)
        tainted = any(True for message in conversation.messages if message.untrusted)
        if tainted or not self.begins_session or len(conversation.messages) > 1:
            self.gate.enter(state.disabled, map(grant_of, state.grants), tainted=tainted)
        return conversation

    async def _wait(self) -> None:
        """Wait for the earlier runs of the session; then the history is complete."""
        before = (await self.line.in_order(self.row.session))[0]
        if before != self.row.id and not self.held:  # it may have ended while this one was stored
            self.log.add(Notice("queued", f"Waiting for run {before} of the same session."))
        await self.line.reach(self.row.session, self.row.id)
        self.log.put(RunBegan(self.row.id))

    async def _screen_results(self, conversation: Conversation) -> None:
        """Have the results of calls that the client ran screened. Raises Paused, BudgetSpent, StoreFailed."""
        scope, turn = self.agent.scope, self.turn
        if turn is None or not turn.results or not scope.guards.screens_results:
            return
        self._start_clock()
        scope.guards.enter(())
        piece = scope.results.characters  # the longest result that a tool of ours gives the model
        results, events = await scope.guards.screen_handed(
            turn.results, scope.totals, conversation, piece=piece, check_not_paused=scope.check_not_paused
        )
        self.turn = replace(turn, results=results)
        self.agent.notices = [*self.agent.notices, *events]

    async def _undone(self) -> Message | None:
        """Return the message by which the model learns that earlier runs of the session were undone."""
        checkpoints = self.agent.scope.checkpoints
        rows = await checkpoints.take_undone(self.row.session) if checkpoints else ()
        if checkpoints is None or not rows:
            return None
        return Message("user", await asyncio.to_thread(undone_message, checkpoints.store, rows), sender="file")

    async def _recalled(self) -> Beside | None:
        """Return what the memory puts beside the message of a person; of an unlisted run nothing is kept."""
        turn, memory = self.turn, self.agent.scope.memory
        if turn is None or memory is None or not turn.asked or self.is_unlisted:
            return None
        with self.agent.totals.times.step(RECALL):
            return await recalled_beside(memory, turn.message, self.agent.scope.labels)

    async def _begin(
        self,
        conversation: Conversation,
        state: SessionState,
        earlier: EarlierCalls,
        *,
        undone: Message | None,
        news: News | None,
        beside: Beside | None,
    ) -> None:
        turn, self.turn = self.turn, None
        unknown = conversation.take_results(turn.results) if turn else []
        if unknown:
            self.log.add(Notice("unknown_call", UNKNOWN_CALL.format(calls=", ".join(unknown[:MOST_NAMED]))))
        conversation.settle(INTERRUPTED, earlier.started, earlier.handed)  # a store may have lost results
        if undone:
            conversation.append(undone)
            self.log.add(Notice("undone", UNDONE_NOTICE))
        if news:
            news.enter(conversation)
        if turn and turn.asked and not turn.call and state.contexts:
            for app in state.contexts:
                conversation.append(Message("user", app.written or "", untrusted=True, sender="client"))
                self.log.put(AppContextRead(app.session, app.call, app.written or ""))
            self.log.add(Notice("app_context", APP_CONTEXT))
        for row in state.orphaned:
            conversation.append(message := message_of(row))
            self.log.add(added(message))  # its own run never logged it
            self.log.put(InboxTaken(row.run))
        if turn:
            await self._begin_turn(conversation, turn)
        if beside:
            self.log.add(beside.notice)
        for number, message in enumerate(self.inbox.take()):
            if number == 0 and (turn is None or turn.has_message):
                untrusted = turn is not None and turn.untrusted
                sender = sender_of(self.row)
                message = replace(message, at=self.row.created, untrusted=untrusted, sender=sender)  # late, perhaps
                message = as_sent(self.row, message)
                conversation.append(beside.put(message) if beside else message)
            else:
                conversation.append(message)
                self.log.add(added(message))

    async def _begin_turn(self, conversation: Conversation, turn: RunRequest) -> None:
        if turn.notice:
            self.log.add(turn.notice)
        if not turn.history:
            return
        async with aclosing(sliced(self.agent.imported(turn.history))) as messages:
            async for message in messages:  # results of tools that ran elsewhere are untrusted
                conversation.append(replace(message, untrusted=True) if message.role == "tool" else message)
        if not turn.has_message:
            conversation.begins = _last_turn(turn.history)

    async def _iterate(self, conversation: Conversation) -> AgentEvent | None:
        async with aclosing(self.agent.run(self.row.id, conversation, self.inbox, self.left, self.log)) as events:
            async for event in events:
                if event.type in TERMINAL:
                    return event
                self.log.add(event)
                if self.journal.full:
                    await self.journal.room()
        return None

    def _stopped(self, reason: str, advice: str = GO_ON) -> RunFinished:
        """The end of a run that was stopped from outside; an agent puts into words that its limits did it."""
        if reason in SPOKEN and self.conversation:
            self.conversation.settle(STOPPED)
            words = answer_of(self.conversation)
            if not words and self.agent.adds_words:
                fallback = fallback_answer(reason, self.agent.totals, self.conversation, advice=advice)
                words = self.agent.scope.guards.plain(fallback)
                self.conversation.append(Message("assistant", words, shown=words))
                self.log.add(TextDelta(words))
            self.agent.totals.text = words
        return self.agent.finished(reason, self.conversation)

    async def _end(self, terminal: AgentEvent) -> None:
        self._settle()
        if recorder := self.agent.scope.recorder:
            recorder.close()
        with suppress(StoreFailed):  # `RunManager` does it once the store is well
            await self._withdraw()
        self._name_words()
        self.log.add(terminal)
        self.log.put(RunEnded(self.row.id, state_of(terminal), time.time()))
        memory = None if self.is_unlisted else self.agent.scope.memory
        job_is_stored = leave_job(memory, self.row, self.conversation, terminal, self.log.put)
        with suppress(StoreFailed):  # then the log has failed, which `RunManager` sees
            await self.journal.flush()
            job_is_stored()

    def _name_words(self) -> None:
        """Leave names of what the model has said, unless it has read untrusted text: a client may send it back."""
        if self.conversation is None or not has_mark(self.row, KNOWN):
            return
        messages = self.conversation.messages
        if not any(message.untrusted for message in messages):
            said = [message for message in messages[self.replies_from :] if message.role == "assistant"]
            for name in names_of(said):
                self.log.put(KeyRow(self.row.principal, name, "", self.row.id, time.time()))

    async def _leave(self) -> None:
        """Leave the run to the next server: what is known of its calls is kept, and its watchers are to return."""
        if self.conversation:
            self.conversation.settle_stopped()
        if not self.waits and self.log.last_seq:
            self.log.add(Notice(SUSPENDED, RETURN))
        with suppress(StoreFailed):
            await self._withdraw_questions()
            await self.journal.flush()
        self.log.leave()

    async def _withdraw(self) -> None:
        """Withdraw the run's open approvals and questions. Raises StoreFailed."""
        if self.approvals.is_waiting(self.row.id) or self.approvals.has_question(self.row.id):
            await self.journal.flush()  # it may not be stored yet
        await self._withdraw_questions()
        if row := await self.approvals.withdraw(self.row.id):
            self.log.add(resolution_event(row))

    async def _withdraw_questions(self) -> None:
        for asked in await self.approvals.withdraw_questions(self.row.id):
            self.log.add(resolution_event(asked))

    def _settle(self) -> None:
        """The history as the session's next run needs it: no open call, no message lost."""
        if self.conversation is None:  # its turn never came
            if self.row.state == "queued" and self.stopping == "cancelled":
                self.inbox.close()  # taken back before anything came of it
            else:
                self.inbox.leave()
            return
        left = self.inbox.close()
        self.conversation.settle(STOPPED)
        for message in left:
            self.conversation.append(message)
            self.log.add(added(message))


def _last_turn(history: Sequence[Message]) -> int:
    """Return where the last turn of an imported history begins: behind the last message of the assistant."""
    last = (at for at in range(len(history), 0, -1) if history[at - 1].role == "assistant")
    return next(last, 0)


def state_of(terminal: AgentEvent) -> str:
    match terminal:
        case RunFailed(code=word) | RunFinished(reason=word):
            return word
    raise AssertionError(terminal)
