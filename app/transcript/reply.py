"""One reply of the model: the only border between what the model wrote and what the client sees."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from functools import cache
from io import StringIO
from time import monotonic
from typing import Any

from msgspec.structs import asdict

from app.core.attachments import Attachment, File, image_event
from app.core.events import (
    AgentEvent,
    Notice,
    ReasoningDelta,
    TextDelta,
    ToolDelta,
)
from app.core.messages import AskedCall, Message
from app.core.provider import (
    REPLY_CHANGED,
    TOO_LONG,
    CallId,
    FallbackUsed,
    Finished,
    MetadataChunk,
    PictureChunk,
    Piece,
    ProviderNotice,
    TextChunk,
    TokenUsage,
)
from app.core.recorder import Tape
from app.core.time_slice import HEAVY, in_heavy_thread
from app.models.wire.native_calls import NATIVE
from app.storage.files.kinds import file_of
from app.transcript.document_drafts import DocumentDrafts
from app.transcript.reply_calls import TEXT, THOUGHT, TWICE, ReplyCalls
from app.transcript.reply_text import ReplyText
from app.transcript.unfit_arguments import unfit
from parsing import (
    BadCall,
    Call,
    CallDelta,
    CallOpened,
    ParseEvent,
    Parser,
    Reclassified,
    Text,
    Thought,
    parse,
)
from parsing.dialects import FENCED
from parsing.fences import fenced_call
from parsing.fitting import read_arguments
from parsing.sink import RAW_LIMIT
from parsing.templates.derive import TemplateGrammar, openers_with
from tools.base.patterns import lazy_pattern
from tools.builtin.documents import CONTENT, CREATE_DOCUMENT

CUT_OFF = (None, TOO_LONG, "length", "content_filter")  # stop reasons; None: the stream broke off
REPAIRED = "repaired"  # the code of a notice
LEFT = "This call was left in the text: it may be a quotation, and this model calls its tools natively."
UNKEPT = "what its server wants back with it is nested too deep, and is left out"
ENCODED = "arguments with half a character, or with a name that stands twice, are encoded anew"
HALVED = "half a character in it is U+FFFD"
NEVER_MADE = frozenset({TWICE, THOUGHT, LEFT})  # such a rejection leaves nothing to be answered
_HALF = lazy_pattern("[\ud800-\udfff]")  # a surrogate
CALL_ENDS = tuple(">])}`")  # in every dialect
LONGEST_CALLS = 1 << 16  # characters of reasoning that is read at once for the calls at its end
SLICE = 1024  # characters of a reply that are read at once where all are there
MOST_BEGINNINGS = 20_000  # places where a call or a mark begins, or seems to: each may cost as much as a page of prose
LONGEST_BLOCK = 1 << 24  # characters of a block that may be left in the text: no answer is longer


@cache
def compile_patterns() -> None:
    """Compile the 200 patterns that the parser of any text needs: a tenth of a second, once."""
    parse("A text.\n<tool_call>\n{}", {})


class TextCalls(Enum):
    """Kinds of calls in the text of a model."""

    READ = "read"  # calls
    DOUBTED = "doubted"  # calls of a model that makes others natively: perhaps it only shows them
    IGNORED = "ignored"  # text, since no calls are wanted


class Reply:
    """Pieces of a model's stream go in, events for the client come out; the calls and the message remain.

    `fences`, `prompt_suffix` and `grammar` are asked at the first text: only then is it known which model answers, and
    whether its server took the tools or they had to be taught. So is `text_calls`: what calls in the text of that model
    are, given that it has (or has not) called natively in this reply. `new_id` and `id_for_client` are for
    `found_calls`, which knows more of the calls than `calls` and `refused`.

    A call that is a block of code is shown as well, once it is whole: a request for code is answered with it. A call
    of a client's tool (`is_handed`) is not: the client gets it as a call. `drafts` are its documents.
    """

    def __init__(
        self,
        tools: Mapping[str, dict[str, Any]],
        *,
        fences: Callable[[], bool],
        new_id: Callable[[], str],
        id_for_client: Callable[[str], str] = lambda _: "",
        prompt_suffix: Callable[[], str] = str,
        grammar: Callable[[], TemplateGrammar | None] = lambda: None,
        text_calls: Callable[[bool], TextCalls] = lambda _: TextCalls.READ,
        is_handed: Callable[[str], bool] = lambda _: False,
        drafts: DocumentDrafts | None = None,
        keep_file: Callable[[File], None] | None = None,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self.first_at: float | None = None  # when the first token came
        self.pictures: list[Attachment] = []
        self.used: TokenUsage | None = None
        self.stopped: str | None = None
        self.tape: Tape | None = None  # of a run that is recorded
        self.characters = 0  # that the model wrote: text, thoughts and native calls
        self.undecided = 0  # about as many of its text may be a call, and are read again at its end
        self.doubts_text = False  # as TextCalls.DOUBTED says
        self.changed: list[str] = []  # why the model will not read all of it as it wrote it
        self._text = ReplyText()
        self._new_id, self._id_for_client = new_id, id_for_client
        self._found_calls: ReplyCalls | None = None
        self._parser: Parser | None = None
        self._hint = ""  # what the prompt ends with, as far as the server says so
        self._has_reasoning = False  # apart from the text
        self._switched: FallbackUsed | None = None
        self.expected: FallbackUsed | None = None  # a switch that has been announced
        self.earlier = ""  # what was shown of the answer before this part of it
        self.resumes = ""  # the same before redaction, if this part goes on behind its last character
        self.tools = tools
        self._fences = fences
        self._prompt_suffix = prompt_suffix
        self._grammar = grammar
        self._text_calls = text_calls
        self._is_handed = is_handed
        self._drafts = drafts or DocumentDrafts()
        self._keep_file = keep_file
        self._clock = clock

    @classmethod
    def of_history(cls, message: Message) -> Reply:
        """Return a whole reply as it was when the model had ended it, with its calls that were refused."""
        reply = cls({}, fences=lambda: False, new_id=str)
        reply.characters = len(message.text)
        reply.pictures += message.attachments
        reply.stopped = "stop"
        reply._text.shown.write(message.text if message.shown is None else message.shown)
        reply._text.thought.write(message.reasoning)
        reply.found_calls.made |= {call.id: call for call in message.calls}
        return reply

    @property
    def found_calls(self) -> ReplyCalls:
        """The calls of the reply, with an object that a reply without any has none of while it streams."""
        if self._found_calls is None:
            self._found_calls = ReplyCalls(self._text, self._new_id, self._id_for_client)
        return self._found_calls

    @property
    def has_native(self) -> bool:
        return self._found_calls is not None and self._found_calls.has_native

    def add(self, piece: Piece) -> Iterable[AgentEvent]:
        if self.tape is not None:
            self.tape.add(piece)
        return self._add_text(piece.text) if type(piece) is TextChunk else self._add_other(piece)

    def _add_text(self, text: str) -> Sequence[AgentEvent]:
        """Nearly every piece, and nearly always it is text: without a generator."""
        written = self._text
        if written.half or (not text.isascii() and _HALF.search(text)):
            text = written.whole(text)
            if _HALF.search(text):
                self.changed.append(HALVED)
        written.wrote.write(text)
        self.characters += len(text)
        if self.characters >= written.fold_at:
            written.fold(self.characters)
        self._parser = self._parser or self._new_parser()
        found = self._parser.feed(text)
        if len(found) == 1 and type(shown := found[0]) is Text:
            words = text if str.__eq__(shown, text) else shown.text  # as a rule the same string is kept twice
            written.shown.write(words)
            return (TextDelta(words),)
        is_decided = any(isinstance(seen, Text | Thought | Call | BadCall) for seen in found)
        self.undecided = 0 if is_decided else self.undecided + len(text)
        return [event for seen in found for event in self._see(seen, TEXT)]

    async def added(self, piece: Piece) -> Iterable[AgentEvent]:
        """Do the same, in a thread if a long call may be read again."""
        is_long = self.undecided > HEAVY and type(piece) is TextChunk
        if is_long or (type(piece) is Call and self.characters > HEAVY):
            return self._watched(await in_heavy_thread(lambda: list(Reply.add(self, piece))))
        return self.add(piece)

    async def ended(self) -> Iterable[AgentEvent]:
        """End the stream as `end` does, in a thread if the reply is long."""
        if self._parser is not None and self.characters > HEAVY:
            return self._watched(await in_heavy_thread(lambda: list(Reply.end(self))), ends=True)
        return self.end()

    def _watched(self, events: Iterable[AgentEvent], *, ends: bool = False) -> Iterable[AgentEvent]:
        """Return events as they are shown; what comes of them is recorded, which no thread may do."""
        return events

    def _add_other(self, piece: Piece) -> Iterator[AgentEvent]:
        match piece:
            case TokenUsage():
                self.used = piece if piece.prompt_tokens or piece.completion_tokens else None
            case Finished(reason):
                self.stopped = reason
            case ProviderNotice(code=code, message=message) if code == REPLY_CHANGED:
                self.changed.append(message)
            case ProviderNotice():
                yield Notice(**asdict(piece))
            case FallbackUsed(wanted, answered_by, reason):
                self._switched = piece
                if piece == self.expected:
                    return
                words = f"{wanted} could not answer ({reason}): {answered_by} answers."
                yield Notice("fallback", words, wanted, answered_by, reason)
            case PictureChunk(data) if self._keep_file:
                self.first_at = self.first_at or self._clock()
                self._keep_file(file := file_of(data))
                self.pictures.append(file.attachment)
                yield image_event(file)
            case CallId(index):
                self.found_calls.given[index] = piece
            case MetadataChunk(sealed, index):
                if unfit(sealed.fields):
                    self.changed.append(UNKEPT)
                else:
                    self.found_calls.sealed[index] = sealed
            case Thought() | CallOpened() | CallDelta() | Call() | BadCall():
                self.first_at = self.first_at or self._clock()
                if isinstance(piece, Thought | CallDelta):
                    self.characters += len(piece.text)
                    self._has_reasoning |= isinstance(piece, Thought)
                yield from self._see(piece, NATIVE)

    def end(self) -> Iterator[AgentEvent]:
        """End the stream; emit what the parser still held."""
        if self._text.half:
            self._text.half = ""
            yield from self._add_text("\ufffd")
        if self._parser is None:
            return
        for seen in self._parser.close(cut=self.is_cut):
            yield from self._see(seen, TEXT)
        if self._text.ends_in_block:
            yield from self._see(Text("\n"), TEXT)  # the next reply begins a line
        self.found_calls.keep_blocks(self._parser)

    def break_off(self, why: str) -> Iterator[AgentEvent]:
        """End a reply that another model is to go on with, behind the text that is shown.

        Calls that have begun are rejected, and what may be the beginning of one is dropped with the rest that is held.
        """
        yield from self.found_calls.drop_open(why)
        if self._text.ends_in_block:
            yield from self._see(Text("\n"), TEXT)
        if not self.calls:
            self._text.wrote = StringIO()
            self._text.wrote.write(self.shown)

    @property
    def calls(self) -> list[AskedCall]:
        return [*self.found_calls.made.values()]

    @property
    def refused(self) -> dict[str, str]:
        """Return why calls could not be understood, by their ids."""
        return self.found_calls.refused

    @property
    def is_cut(self) -> bool:
        """Return True if the stream broke off, or a limit or filter ended it."""
        return self.stopped in CUT_OFF

    @property
    def begins_too_often(self) -> bool:
        """Return True once more of the text would cost more than any answer is worth."""
        return self._parser is not None and self._parser.tried > MOST_BEGINNINGS

    @property
    def has_started(self) -> bool:
        """Return True once the model has written anything."""
        return bool(self.characters or self.found_calls.ids or self.pictures)

    @property
    def may_be_thought(self) -> bool:
        """Return True while what is shown may turn out to be reasoning: nobody said what the prompt ends with."""
        return not (self._hint or self._text.thought.tell())

    @property
    def has_ended_open_thought(self) -> bool:
        """Return True if a thought was closed, with the usual mark, that the prompt had begun unknown to us."""
        return self._text.has_reclassified and not self._hint and "</think>" in self._text.wrote.getvalue()

    @property
    def is_only_thought(self) -> bool:
        """Return True if a whole reply was taken for a thought because the prompt is believed to begin one."""
        return bool(self._hint and self.stopped == "stop" and self._text.thought.tell()) and not (
            self.shown or self.found_calls.made
        )

    def show_thought(self) -> TextDelta:
        """Show what was taken for a thought: it is the answer. Reasoning that was sent cannot be taken back."""
        text = self._text.thought.getvalue()
        self._text.shown.write(text)
        return TextDelta(text)

    @property
    def has_thought_apart(self) -> bool:
        """Return True if the server has sent reasoning apart from an answer."""
        return self._has_reasoning and bool(self._text.wrote.tell() or self.has_native)

    @property
    def is_whole_thought(self) -> bool:
        """Return True if the reply came whole as reasoning, which its server has not signed, and ended as it should."""
        return (
            self._has_reasoning
            and self.stopped == "stop"
            and not (self._text.wrote.tell() or self.found_calls.ids or self.found_calls.sealed)
        )

    @property
    def thought_ends_in_calls(self) -> bool:
        """Return True if this reasoning, read as text, has no sign of a thought and ends in its calls."""
        thought = self._text.thought.getvalue().rstrip()
        if (
            not thought.endswith(CALL_ENDS)
            or len(thought) > LONGEST_CALLS
            or self._text_calls(False) is TextCalls.IGNORED
        ):
            return False
        parser = Parser(self.tools, fences=self._fences(), openers=openers_with(self._grammar()))
        found = [*parser.feed(thought), *parser.close()]
        first = next((at for at, seen in enumerate(found) if isinstance(seen, CallOpened | Call | BadCall)), None)
        if first is None or any(isinstance(seen, Thought | Reclassified) for seen in found):
            return False
        return not any(isinstance(seen, Text) and seen.text.strip() for seen in found[first:])

    def take_thought(self, *, calls: bool) -> Iterator[AgentEvent]:
        """Read the reasoning as the text that it is, with or without calls in it.

        Reasoning that was sent cannot be taken back.
        """
        text = self._text.thought.getvalue()
        characters = self.characters
        self._parser = self._new_parser() if calls else Parser({}, fences=False, calls=False)
        for begin in range(0, len(text), SLICE):
            yield from self._add_text(text[begin : begin + SLICE])
        yield from self.end()
        self.characters = characters

    @property
    def shown(self) -> str:
        return self._text.shown.getvalue()

    @property
    def prose(self) -> str:
        """The text that is shown, without the blocks of code that are calls."""
        return self._text.prose

    def message(self, *, cut: bool = False) -> Message:
        self._text.fold(self.characters)
        return Message(
            "assistant",
            self._text.wrote.getvalue(),
            calls=tuple(self.found_calls.made.values()),
            reasoning=self._text.thought.getvalue(),
            shown=self.shown,
            cut=cut,
            sealed=self.found_calls.sealed.get(None),
            attachments=tuple(self.pictures),
            switched=asdict(self._switched) if self._switched else None,
        )

    def _new_parser(self) -> Parser:
        """Return the parser of the text, which begins."""
        self.first_at = self.first_at or self._clock()
        mode = self._text_calls(self.has_native)
        self.doubts_text = mode is TextCalls.DOUBTED
        self._hint = suffix = self._prompt_suffix()
        parser = Parser(
            self.tools,
            fences=self._fences(),
            prompt_suffix=suffix,
            calls=mode is not TextCalls.IGNORED,
            excerpt=LONGEST_BLOCK if self.doubts_text else RAW_LIMIT,
            openers=openers_with(self._grammar()),
        )
        parser.resume(self.resumes)
        return parser

    def _see(self, seen: ParseEvent, source: str) -> Iterator[AgentEvent]:
        match seen:
            case Text(text):
                self._text.shown.write(text)
                yield TextDelta(text)
            case Thought(text):
                self._text.thought.write(text)
                yield ReasoningDelta(text)
            case CallOpened(index, name):
                yield ToolDelta(call_id := self.found_calls.id_of(source, index, name), "", name)
                if name == CREATE_DOCUMENT and self._writes_document(name, source):
                    self._drafts.open(call_id, CONTENT)
            case CallDelta(index, text):
                if source == NATIVE:
                    self.found_calls.written.setdefault(index, []).append(text)
                yield from self._drafts.feed(self.found_calls.id_of(source, index), text)
            case Call():
                yield from self._see_call(seen, source)
            case BadCall():
                yield self.found_calls.reject(seen, source)
            case Reclassified(characters, calls):
                drafts = self.found_calls.last_in_text(calls)
                blocks = self._text.forget_blocks([draft.id for draft in drafts])
                yield from self._text.reclassify(characters + blocks)
                yield from self.found_calls.take_back(drafts)

    def _writes_document(self, name: str, source: str) -> bool:
        certain = source == NATIVE or not self.doubts_text
        return certain and name in self.tools and not self._is_handed(name)

    def _see_call(self, seen: Call, source: str) -> Iterator[AgentEvent]:
        index, name, dialect, schema = seen.index, seen.name, seen.dialect, self.tools.get(seen.name, {})
        arguments, repairs = seen.arguments, seen.repairs
        call_id = self.found_calls.id_of(source, index, name)
        if source == NATIVE:  # the parser has done so with those in the text
            arguments, fitted = read_arguments(arguments, schema)
            repairs = (*repairs, *fitted)
        if reason := unfit(arguments):
            yield self.found_calls.reject(BadCall(index, "", reason), source)
            return
        if dialect == FENCED.name and not self._is_handed(name):
            yield self._text.show_block(call_id, fenced_call(name, arguments, schema))
        yield from self.found_calls.take(self.found_calls.asked(call_id, name, arguments, dialect, index))
        if call_id in self.found_calls.encoded_anew and not repairs:
            self.changed.append(ENCODED)
        if repairs:
            yield Notice(REPAIRED, f"A call of {name} was repaired: {' '.join(repairs)}")
