"""Build the messages of a model request: the whole conversation, or what trimming and summaries keep of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Any, Protocol

from msgspec import Struct, field
from msgspec.structs import replace

from app.budget.side_query import SentRequest
from app.context.compaction.replay import CachedCounter, CompactedHistory, HistoryCache, WindowBudget
from app.context.compaction.summarise import MessageRange, Summariser
from app.context.compaction.summary import cut_position
from app.context.compaction.trim import MOST_BYTES, attachment_bytes, limit_attachments
from app.context.current_plan import reminder
from app.context.lesson import Lesson
from app.context.overflow import ContextOverflow
from app.context.relay_prompt import relay_opening
from app.core.events import AgentEvent, ContextTrimmed
from app.core.messages import Message, for_models, rejoined, with_pictures_apart
from app.core.provider import ModelRequest, ProviderFailed, ReadFile
from app.core.time_slice import sliced
from app.models.endpoints.failover import ModelRoute
from app.models.tokens.counter import CountedModel, TokenCounter
from app.models.tokens.cutting import shortened
from app.models.wire.parameters import EFFORT
from app.models.wire.tool_choice import NONE
from app.storage.sessions import SummaryRow
from app.transcript.conversation import Conversation
from app.transcript.round_plan import RoundPlan
from app.transcript.run_totals import RunTotals
from tools.builtin.plan import NAME as PLAN
from tools.builtin.recall_history import NAME as RECALL
from tools.tool import Tool

MOST_ANSWER = 4096  # tokens that are kept free for an answer, or a quarter of a smaller window
SHAPES_PROMPT = (EFFORT, "chat_template_kwargs")  # parameters that templates may write into the prompt
BODY_TOO_LONG = 413  # HTTP status: too many bytes, not too many tokens
LEFT_OUT = "[Earlier messages are left out here.]"
TO_FIND = f"[Earlier messages are left out here. {RECALL} finds them.]"
MARKER = Message("user", TO_FIND)  # the longer of the two

Opening = Callable[[Sequence[Tool]], Sequence[Message]]
"""Returns the messages in front of the conversation for these tools; called for each request."""
Summaries = Callable[[str], Awaitable[Sequence[SummaryRow]]]
"""Returns the summaries of a session; the last one covers most of it. Raises StoreFailed."""


async def no_summaries(session: str) -> Sequence[SummaryRow]:
    return ()


class Fitted(Struct, frozen=True):
    """A request that fits the window: `counted` tokens by `counter`, at this `scale`.

    `events` report summaries and trimming.
    """

    request: ModelRequest
    counted: int
    counter: TokenCounter
    scale: float
    events: Sequence[AgentEvent] = ()

    @property
    def has_attachments(self) -> bool:
        """True if it has attachments. Their tokens are only estimated, so the counter is not calibrated with it."""
        return self.request.has_attachments


class ViewedModel(CountedModel, Protocol):
    @property
    def native_tools(self) -> bool:
        """True if tool schemas are sent beside the messages: then they are counted too."""


class _OfModel(Struct):
    """A view on the messages for one model, or several in turn."""

    model: CountedModel

    @property
    def counter(self) -> TokenCounter:
        return self.model.counter

    async def window(self) -> int:
        """Return the window of the model. Raises ProviderFailed as `counter` does."""
        return await self.counter.window()


class View(_OfModel):
    """The view of one run on its conversation."""

    model: ViewedModel
    opening: Opening
    inactivity_s: float | None = None
    summaries: Summaries = no_summaries
    summariser: Summariser | None = None
    summarise_at: float = 1.0  # share of the window; 1 for never
    histories: HistoryCache = field(default_factory=HistoryCache)
    read: ReadFile | None = None
    describe_files: bool = False
    parameters: Mapping[str, Any] = field(default_factory=dict)  # of each request, as a client gave them
    most_bytes: int = MOST_BYTES  # of pictures and PDFs in one request
    entered: Callable[[CompactedHistory], None] | None = None  # called with the history that the run begins with
    lesson: Lesson | None = None  # in the opening
    session: str = ""  # it may have met a limit of the model
    _compacted: CompactedHistory | None = None

    async def window(self) -> int:
        return await self.counter.window(self.session)

    async def fit(
        self, conversation: Conversation, tools: Sequence[Tool], plan: RoundPlan, totals: RunTotals
    ) -> Fitted:
        """Return the next request. Raises ContextOverflow, StoreFailed.

        A round without tools gets the same messages as one with tools, so that the prefix cache stays valid.
        """
        compacted, room = await self._advanced(conversation, tools)
        if events := await self._summarise(compacted, conversation, room, tools, totals):
            room = self._measured_anew(room)
        compacted = self._compacted or compacted
        try:
            trimmed = compacted.fit(room)
        except ContextOverflow:
            self.counter.doubt(self.session)
            raise
        if trimmed:
            events.append(ContextTrimmed(trimmed.dropped, trimmed.shortened, trimmed.before, trimmed.after))
        reminders = self._plan_note(conversation, compacted, room, tools)
        notes = [Message("user", note) for note in (*plan.notes, *reminders)]
        limited = limit_attachments(self._with_marker(compacted, tools), self.most_bytes)
        messages = [*with_pictures_apart(rejoined(limited)), *notes]
        offered = tools if plan.tools else ()
        request = replace(self._request(compacted, conversation, messages, offered), go_on=plan.go_on)
        opening = compacted.opening(room.head if plan.tools else self.opening(()))
        counted = room.tokens_of(opening) + sum(map(room.measure, messages))
        counted += room.described if request.tools else 0
        counter = self.counter
        return Fitted(request, counted, counter, counter.scale, events)

    async def compact(
        self, message_range: MessageRange, conversation: Conversation, tools: Sequence[Tool], totals: RunTotals
    ) -> Sequence[AgentEvent]:
        """Have this part of the conversation summarised. Raises StoreFailed."""
        if self.summariser is None:
            return ()
        compacted, room = await self._advanced(conversation, tools)
        sent = self._sent_range(compacted, conversation, room, tools, message_range)
        return (await self.summariser.summarise(message_range, conversation, totals, sent))[1]

    async def sent(self, conversation: Conversation, tools: Sequence[Tool]) -> SentRequest:
        """Return the request that the next round would continue, for a question behind it. Raises StoreFailed."""
        compacted, room = await self._advanced(conversation, tools)
        return self._as_sent(compacted, conversation, room, tools)

    async def _advanced(
        self, conversation: Conversation, tools: Sequence[Tool]
    ) -> tuple[CompactedHistory, WindowBudget]:
        """Return the compacted history up to the end of the conversation. Raises StoreFailed."""
        self.session = conversation.session
        if self._compacted is None:
            self._compacted = self._with_lesson(await self._known(conversation))
            if self.entered:
                self.entered(self._compacted)
        room = await self._room(conversation.messages[self._compacted.position :], tools)
        self._compacted.advance(conversation.messages, room)
        return self._compacted, room

    def _sent_range(
        self,
        compacted: CompactedHistory,
        conversation: Conversation,
        room: WindowBudget,
        tools: Sequence[Tool],
        message_range: MessageRange,
    ) -> SentRequest | None:
        """Return the request up to the end of the range; None if the model that is asked has not read it like that."""
        if self.summariser is None or not self.summariser.asks_behind(self.counter):
            return None
        if compacted.incomplete or compacted.start != message_range.start:
            return None
        size = message_range.end - message_range.start + (2 if compacted.summary else 0)  # with the marker behind it
        return self._as_sent(compacted, conversation, room, tools, size=size)

    def _as_sent(
        self,
        compacted: CompactedHistory,
        conversation: Conversation,
        room: WindowBudget,
        tools: Sequence[Tool],
        *,
        size: int | None = None,
    ) -> SentRequest:
        """Return the request, or its first messages, as the model gets it in a round with these tools."""
        limited = limit_attachments(self._with_marker(compacted, tools), self.most_bytes)[:size]
        messages = [*with_pictures_apart(rejoined(limited))]
        parameters = {name: value for name, value in self.parameters.items() if name in SHAPES_PROMPT}
        if tools:
            parameters["tool_choice"] = NONE
        request = replace(self._request(compacted, conversation, messages, tools), parameters=parameters)
        counted = room.tokens_of(compacted.opening(room.head)) + sum(map(room.measure, messages)) + room.described
        return SentRequest(request, counted)

    def _request(
        self,
        compacted: CompactedHistory,
        conversation: Conversation,
        messages: Sequence[Message],
        tools: Sequence[Tool],
    ) -> ModelRequest:
        return ModelRequest(
            messages,
            tools,
            opening=lambda: compacted.opening(self.opening(tools)),
            inactivity_s=self.inactivity_s,
            read=self.read,
            describe_files=self._describes(conversation),
            parameters=self.parameters,
            stage=(compacted.start, compacted.trims),
        )

    def _plan_note(
        self, conversation: Conversation, compacted: CompactedHistory, room: WindowBudget, tools: Sequence[Tool]
    ) -> Sequence[str]:
        """Return the model's plan, if the request does not have it any more.

        It comes last, so that the prefix stays as it is, and shortened where it would take an eighth of the window.
        """
        if not compacted.lacks_messages or not any(tool.name == PLAN for tool in tools):
            return ()
        note = reminder(conversation.messages, compacted.kept)
        return (shortened(note, room.budget // 3),) if note else ()

    def _with_lesson(self, history: CompactedHistory) -> CompactedHistory:
        if self.lesson:
            self.lesson.history = history
        return history

    def _describes(self, conversation: Conversation) -> bool:
        """Return True if attachments may be described in words for a model that cannot read them.

        Attachments of the message that began the run are refused instead; refusing older ones would end the session.
        """
        request = conversation.messages[conversation.begins : conversation.begins + 1]
        return self.describe_files or not any(one.ability for message in request for one in message.attachments)

    def fits_model(self, fitted: Fitted) -> bool:
        """True if the model that answered is the one that the request was fitted to."""
        return self.counter is fitted.counter

    def refused(self, fitted: Fitted, refusal: ProviderFailed) -> bool:
        """Learn from a request that was refused as too long. Return False if it cannot become shorter."""
        has_attachments = [message for message in fitted.request.messages if message.attachments]
        if refusal.status == BODY_TOO_LONG and has_attachments:  # a limit of bytes, not of tokens
            self.most_bytes = sum(map(attachment_bytes, has_attachments)) // 2
            return len(has_attachments) > 1
        if self.fits_model(fitted):
            fitted.counter.refused(fitted.counted, refusal.window, self.session)
        return True

    async def _known(self, conversation: Conversation) -> CompactedHistory:
        """Return the session's cached history, else one that begins at its last summary; newer secrets redacted.

        The cached one is out of date once a person or another server has had more summarised.
        """
        session = conversation.session
        so_far = len(conversation.messages)
        redacted = conversation.redactor.redact_value
        # A session with one message has no summary.
        rows = [row for row in await self.summaries(session) if row.upto <= so_far] if so_far > 1 else []
        compacted = self.histories.of(session, conversation.messages)
        if compacted and not (rows and rows[-1].upto > compacted.start):
            if compacted.secrets != conversation.redactor.secrets:
                compacted.kept, compacted.summary = redacted(compacted.kept), redacted(compacted.summary)
                compacted.secrets = conversation.secrets  # those of messages that are yet to come
            return compacted
        return self.histories.keep(session, from_summary(redacted(rows[-1])) if rows else CompactedHistory())

    async def _room(self, new: Sequence[Message], tools: Sequence[Tool]) -> WindowBudget:
        window = await self.window()  # first: it finds out the model's abilities, which the prompt depends on
        head = self.opening(tools)
        await self.counter.prepare([*head, *new], tools)
        counter = self.counter
        described = counter.described(tools) if self.model.native_tools else 0
        spare = answer_room(window) + described + counter.measure(MARKER)
        head_tokens = counter.measure_opening(head)
        return WindowBudget(head, window - spare, CachedCounter(counter.measure), described, head_tokens)

    def _measured_anew(self, room: WindowBudget) -> WindowBudget:
        """Discard cached counts: the side query may have changed the calibration or the model that answers."""
        counter = self.counter
        return replace(room, measure=CachedCounter(counter.measure), head_tokens=counter.measure_opening(room.head))

    async def _summarise(
        self,
        compacted: CompactedHistory,
        conversation: Conversation,
        room: WindowBudget,
        tools: Sequence[Tool],
        totals: RunTotals,
    ) -> list[AgentEvent]:
        """Replace the older half by a summary if one is due. Raises StoreFailed."""
        window = self.counter.window_of(self.session)
        message_range = self._due(compacted, conversation.messages, room, window)
        if self.summariser is None or message_range is None:
            return []
        sent = self._sent_range(compacted, conversation, room, tools, message_range)
        row, events = await self.summariser.summarise(message_range, conversation, totals, sent)
        if row is None:
            compacted.failed_at = compacted.seen_tokens
        else:
            self._compacted = self._with_lesson(self.histories.keep(conversation.session, from_summary(row)))
            await self.counter.prepare(self._compacted.kept)
            self._compacted.advance(conversation.messages, self._measured_anew(room))
        return list(events)

    def _due(
        self, compacted: CompactedHistory, messages: Sequence[Message], room: WindowBudget, window: int
    ) -> MessageRange | None:
        """Return the messages to summarise now: before any would be dropped, but not again soon after a failure."""
        if self.summarise_at >= 1:
            return None
        if compacted.failed_at is not None and compacted.seen_tokens < compacted.failed_at + window // 4:
            return None
        tokens = compacted.tokens(room)
        if tokens <= room.budget and tokens + room.described <= self.summarise_at * window:
            return None
        end = cut_position(messages, compacted.start, compacted.tokens_since(room) // 2, room.measure)
        if end is None or sum(map(room.measure, messages[compacted.start : end])) < window // 8:
            return None
        return MessageRange(compacted.start, end, compacted.summary)

    def _with_marker(self, compacted: CompactedHistory, tools: Sequence[Tool]) -> list[Message]:
        """Return the conversation with a marker after its first user message if some are missing.

        The marker is the same in all rounds, for prefix caches.
        """
        if not compacted.lacks_messages:
            return list(compacted.kept)
        line = TO_FIND if any(tool.name == RECALL for tool in tools) else LEFT_OUT
        first = next((at for at, message in enumerate(compacted.kept) if message.role == "user"), -1)
        return [*compacted.kept[: first + 1], Message("user", line), *compacted.kept[first + 1 :]]


class RelayView(_OfModel):
    """The client's messages as they are: what does not fit the model is the client's to shorten."""

    model: ModelRoute
    parameters: Mapping[str, Any]
    inactivity_s: float | None = None
    files: Mapping[str, bytes] = field(default_factory=dict)  # by SHA-256

    async def fit(
        self, conversation: Conversation, tools: Sequence[Tool], plan: RoundPlan, totals: RunTotals
    ) -> Fitted:
        counter = self.counter
        await counter.window()  # finds out the model's abilities, which the opening depends on
        messages = conversation.messages
        if any(message.attachments for message in messages):  # documents of which no model reads the bytes
            messages = [for_models(message) for message in messages]
        request = ModelRequest(
            messages,
            tools,
            opening=lambda: self.opening(tools),
            inactivity_s=self.inactivity_s,
            read=self._read,
            verbatim=True,
            go_on=plan.go_on,
            parameters=self.parameters,
        )
        counted = 0
        async with aclosing(sliced(request.whole())) as whole:
            async for message in whole:
                counted += counter.measure(message)
        counted += counter.described(tools) if self.model.native_tools else 0
        return Fitted(request, counted, counter, counter.scale)

    def opening(self, tools: Sequence[Tool]) -> Sequence[Message]:
        """Return the lesson in front of the client's messages, for a model that has to be taught its tools."""
        return relay_opening(self.model.call_form, tools, self.parameters)

    def fits_model(self, _: Fitted) -> bool:
        """False: counts of prompts that are sent as they came teach nothing about those that are made here."""
        return False

    def refused(self, _: Fitted, __: ProviderFailed) -> bool:
        """False: a prompt that is too long is the client's to shorten."""
        return False

    async def _read(self, sha256: str) -> bytes:
        return self.files[sha256]


def from_summary(row: SummaryRow) -> CompactedHistory:
    return CompactedHistory(row.upto, Message("user", row.text))


def answer_room(window: int) -> int:
    return min(MOST_ANSWER, window // 4)
