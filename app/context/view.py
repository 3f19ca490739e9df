"""What of a conversation a request carries: all of it, or what trimming and summaries leave."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace

from app.budget.side_query import Aside
from app.config.settings import Settings
from app.context.compaction.attachment_bytes import MOST_BYTES, lightened, weight
from app.context.compaction.cached_counter import Measured
from app.context.compaction.replay import Fold, Folds, Room
from app.context.compaction.summarise import Stretch, Summariser
from app.context.compaction.summary import place_to_cut
from app.context.compaction.trim import Trimmed
from app.context.overflow import ContextOverflow
from app.core.events import AgentEvent, ContextTrimmed
from app.core.messages import Message
from app.core.provider import ModelRequest, ProviderFailed, ReadFile
from app.models.endpoints.failover import Route
from app.models.tokens.counter import Counter
from app.storage.sessions import SummaryRow
from app.transcript.conversation import Conversation
from app.transcript.round_plan import Plan
from app.transcript.run_totals import Account
from tools.builtin.recall_history import NAME as RECALL
from tools.tool import Tool

MOST_ANSWER = 4096  # tokens that are kept free for an answer, or a quarter of a smaller window
BODY_TOO_LONG = 413  # bytes, whatever they mean
LEFT_OUT = "[Earlier messages are left out here.]"
TO_FIND = f"[Earlier messages are left out here. {RECALL} finds them.]"

Opening = Callable[[Sequence[Tool]], Sequence[Message]]
"""The messages in front of the conversation, for these tools; asked when the request is made."""
Summaries = Callable[[str], Awaitable[Sequence[SummaryRow]]]
"""Those of a session, the one that stands for most of it last. Raises StoreFailed."""


async def no_summaries(session: str) -> Sequence[SummaryRow]:
    return ()


@dataclass(frozen=True, slots=True)
class Fitted:
    """A request that fits the window: `counted` tokens by this `counter` with this `scale`.

    `events` tell what was done for that.
    """

    request: ModelRequest
    counted: int
    counter: Counter
    scale: float
    events: Sequence[AgentEvent] = ()

    @property
    def pictured(self) -> bool:
        """Whether it has pictures or PDFs, whose tokens nobody can count: nothing is learned of texts from it."""
        return any(message.attachments for message in self.request.messages)


@dataclass(slots=True)
class View:
    """One per run. `counters` gives the counter of the model that the next request is for.

    `native` says whether tools are offered beside the messages: then they are counted, too.
    """

    counters: Callable[[], Counter]
    opening: Opening
    inactivity_s: float | None = None
    native: Callable[[], bool] = lambda: False
    summaries: Summaries = no_summaries
    summariser: Summariser | None = None
    summarise_at: float = 1.0  # share of the window; 1 for never
    folds: Folds = field(default_factory=Folds)
    read: ReadFile | None = None
    describe_files: bool = False
    run: str = ""
    most_bytes: int = MOST_BYTES  # of pictures and PDFs in one request
    last: Callable[[], Counter] | None = None  # of the model that was asked last, which may have stood in
    _fold: Fold | None = None

    @property
    def counter(self) -> Counter:
        return self.counters()

    async def fit(self, conversation: Conversation, tools: Sequence[Tool], plan: Plan, account: Account) -> Fitted:
        """The next request. Raises ContextOverflow, StoreFailed.

        Whether this round offers the tools or not, the messages are fitted as if it did: they stay the same.
        """
        fold = self._fold = self._fold or await self._known(conversation)
        notes = [Message("user", note) for note in plan.notes]
        room = await self._room(conversation.messages[fold.walked :], tools)
        fold.walk(conversation.messages, room)
        if events := await self._summarise(conversation, room, account):
            room = self._measured_anew(room)
        if trimmed := self._fitting(room):
            events.append(ContextTrimmed(trimmed.dropped, trimmed.shortened, trimmed.before, trimmed.after))
        messages = [*lightened(self._told(self._fold, tools), self.most_bytes), *notes]
        request = self._request(self._fold, tools, messages, offers=plan.tools, describes=self._describes(conversation))
        counted = sum(map(room.measure, request.whole())) + (room.described if request.tools else 0)
        return Fitted(request, counted, self.counter, self.counter.scale, events)

    def _describes(self, conversation: Conversation) -> bool:
        """Only the message that the run began with is a reason to refuse: for others session or work would be lost."""
        asked = conversation.messages[conversation.begins : conversation.begins + 1]
        return self.describe_files or not any(message.attachments for message in asked)

    def was_for(self, fitted: Fitted) -> bool:
        """Whether the model that was asked is the one that the request was made to fit."""
        return (self.last or self.counters)() is fitted.counter

    def refused(self, fitted: Fitted, refusal: ProviderFailed) -> bool:
        """The request was refused as too long: learn from that. False if it cannot become shorter."""
        pictured = [message for message in fitted.request.messages if message.attachments]
        if refusal.status == BODY_TOO_LONG and pictured:  # which says nothing of tokens
            self.most_bytes = sum(map(weight, pictured)) // 2
            return len(pictured) > 1
        if self.was_for(fitted):
            fitted.counter.refused(fitted.counted, refusal.window)
        return True

    def _fitting(self, room: Room) -> Trimmed | None:
        """Raises ContextOverflow."""
        assert self._fold
        try:
            return self._fold.fit(room)
        except ContextOverflow:
            self.counter.doubt()
            raise

    async def _known(self, conversation: Conversation) -> Fold:
        """As the session's last run left it, else from its last summary on; without what has become a secret since."""
        session, so_far = conversation.session, len(conversation.messages)
        redacted = conversation.redactor.redact_value
        if fold := self.folds.of(session, conversation.messages):
            fold.kept, fold.summary = redacted(fold.kept), redacted(fold.summary)
            return fold
        # With its first message a session has none.
        rows = [row for row in await self.summaries(session) if row.upto <= so_far] if so_far > 1 else []
        return self.folds.keep(session, folded(redacted(rows[-1])) if rows else Fold())

    async def _room(self, new: Sequence[Message], tools: Sequence[Tool]) -> Room:
        window = await self.counter.window()  # first: then it is known what to teach, and who hangs
        head = self.opening(tools)
        await self.counter.prepare([*head, *new], tools)
        described = self.counter.described(tools) if self.native() else 0
        spare = answer_room(window) + described + self.counter.measure(Message("user", TO_FIND))
        return Room(head, window - spare, Measured(self.counter.measure), described)

    def _measured_anew(self, room: Room) -> Room:
        """Others have been asked meanwhile: counts may have changed, and who is to answer."""
        return replace(room, measure=Measured(self.counter.measure))

    async def _summarise(self, conversation: Conversation, room: Room, account: Account) -> list[AgentEvent]:
        """Fold the older half into a summary if it is time for that. Raises StoreFailed."""
        stretch = self._due(conversation.messages, room, self.counter.known_window)
        if self.summariser is None or self._fold is None or stretch is None:
            return []
        row, events = await self.summariser.summarise(self.run, stretch, conversation, account)
        if row is None:
            self._fold.failed_at = self._fold.grown
        else:
            self._fold = self.folds.keep(conversation.session, folded(row))
            await self.counter.prepare(self._fold.kept)
            self._fold.walk(conversation.messages, self._measured_anew(room))
        return list(events)

    def _due(self, messages: Sequence[Message], room: Room, window: int) -> Stretch | None:
        """What to summarise now: before messages would have to be left out, but not again soon after a failure."""
        fold = self._fold
        if fold is None or self.summarise_at >= 1:
            return None
        if fold.failed_at is not None and fold.grown < fold.failed_at + window // 4:
            return None
        tokens = fold.tokens(room)
        if tokens <= room.budget and tokens + room.described <= self.summarise_at * window:
            return None
        end = place_to_cut(messages, fold.start, fold.tokens_since(room) // 2, room.measure)
        if end is None or sum(map(room.measure, messages[fold.start : end])) < window // 8:
            return None
        return Stretch(fold.start, end, fold.summary)

    def _told(self, fold: Fold, tools: Sequence[Tool]) -> list[Message]:
        """The conversation, with a line where something is missing: the same in all rounds, for prefix caches."""
        if not fold.lossy and not fold.summary:
            return list(fold.kept)
        line = TO_FIND if any(tool.name == RECALL for tool in tools) else LEFT_OUT
        first = next((at for at, message in enumerate(fold.kept) if message.role == "user"), -1)
        return [*fold.kept[: first + 1], Message("user", line), *fold.kept[first + 1 :]]

    def _request(
        self, fold: Fold, tools: Sequence[Tool], messages: Sequence[Message], *, offers: bool, describes: bool
    ) -> ModelRequest:
        offered = tools if offers else ()
        return ModelRequest(
            messages,
            offered,
            opening=lambda: fold.opening(self.opening(offered)),
            inactivity_s=self.inactivity_s,
            read=self.read,
            describe_files=describes,
        )


def folded(row: SummaryRow) -> Fold:
    return Fold(row.upto, Message("user", row.text))


def answer_room(window: int) -> int:
    return min(MOST_ANSWER, window // 4)


def view_of(
    settings: Settings,
    route: Route,
    prompt: Opening,
    utility: Aside,
    summaries: Summaries,
    folds: Folds,
    inactivity_s: float | None,
    read: ReadFile,
    *,
    describe_files: bool,
) -> View:
    """The view of a run that asks the models of `route`; `utility` writes the summaries, `read` gives attachments."""
    return View(
        lambda: route.counter,
        prompt,
        inactivity_s,
        native=lambda: route.native_tools,
        summaries=summaries,
        summariser=Summariser(utility),
        summarise_at=settings.summarise_at,
        folds=folds,
        read=read,
        describe_files=describe_files,
    )
