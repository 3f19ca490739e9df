"""One reply of the model: the only border between what the model wrote and what the client sees."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from io import StringIO
from time import monotonic
from typing import Any

from msgspec.structs import asdict, replace

from app.core.attachments import Attachment, File, image_event
from app.core.events import (
    AgentEvent,
    Notice,
    ReasoningDelta,
    TextDelta,
    TextReclassified,
    ToolDelta,
    ToolRejected,
)
from app.core.messages import AskedCall, Message, OpaqueMetadata
from app.core.provider import (
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
from app.models.wire.native_calls import NATIVE
from app.storage.files.kinds import file_of
from app.transcript.document_drafts import DocumentDrafts
from app.transcript.unfit_arguments import unfit
from parsing import (
    Arguments,
    BadCall,
    Call,
    CallDelta,
    CallOpened,
    ParseEvent,
    Parser,
    Reclassified,
    Text,
    Thought,
)
from parsing.dialects import FENCED
from parsing.fences import fenced_call
from parsing.fitting import read_arguments
from parsing.sink import RAW_LIMIT
from tools.base.patterns import lazy_pattern
from tools.base.permit import canonical
from tools.builtin.documents import CONTENT, CREATE_DOCUMENT

CUT_OFF = (None, TOO_LONG, "length", "content_filter")  # stop reasons; None: the stream broke off
REPAIRED = "repaired"  # the code of a notice
TWICE = "The same call came twice, natively and in the text: it is made once."
THOUGHT = "This call stood in the model's thoughts: it was not run."
LEFT = "This call was left in the text: it may be a quotation, and this model calls its tools natively."
NEVER_MADE = frozenset({TWICE, THOUGHT, LEFT})  # such a rejection leaves nothing to be answered
_HALF = lazy_pattern("[\ud800-\udfff]")  # a surrogate
FOLDED_AFTER = 128  # characters, and a sixteenth of all that came before
CALL_ENDS = tuple(">])}`")  # in every dialect
LONGEST_CALLS = 1 << 16  # characters of reasoning that is read at once for the calls at its end
SLICE = 1024  # characters of a reply that are read at once where all are there
MOST_BEGINNINGS = 20_000  # places where a call or a mark begins, or seems to: each may cost as much as a page of prose
LONGEST_BLOCK = 1 << 24  # characters of a block that may be left in the text: no answer is longer


class TextCalls(Enum):
    """Kinds of calls in the text of a model."""

    READ = "read"  # calls
    DOUBTED = "doubted"  # calls of a model that makes others natively: perhaps it only shows them
    IGNORED = "ignored"  # text, since no calls are wanted


class Reply:
    """Pieces of a model's stream go in, events for the client come out; the calls and the message remain.

    Calls in text and native calls meet here: both have an index of their own, and each gets one id of ours, or of a
    native one's server if `id_for_client` returns it. A call that
    is made in both ways (a server has left it in the text, or the model says it twice) is one, the native one. `fences`
    and `prompt_suffix` are asked at the first text: only then is it known which model answers, and whether its server
    took the tools or they had to be taught. So is `text_calls`: what calls in the text of that model are, given that it
    has (or has not) called natively in this reply.

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
        text_calls: Callable[[bool], TextCalls] = lambda _: TextCalls.READ,
        is_handed: Callable[[str], bool] = lambda _: False,
        drafts: DocumentDrafts | None = None,
        keep_file: Callable[[File], None] | None = None,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self.first_at: float | None = None  # when the first token came
        self._clock = clock
        self.pictures, self._keep_file = list[Attachment](), keep_file
        self.refused: dict[str, str] = {}  # call id -> why it could not be understood
        self.used: TokenUsage | None = None
        self.stopped: str | None = None
        self.characters = 0  # that the model wrote: text, thoughts and native calls
        self._made: dict[str, AskedCall] = {}  # by their ids: one that turns out to be made twice is taken out again
        self._tools = tools
        self._fences = fences
        self._prompt_suffix = prompt_suffix
        self._hint = ""  # what the prompt ends with, as far as the server says so
        self._text_calls = text_calls
        self._is_handed = is_handed
        self._drafts = drafts or DocumentDrafts()
        self.doubts_text = False  # as TextCalls.DOUBTED says
        self._raw: dict[str, str] = {}  # call in the text -> the block that it stands in
        self._closers: dict[str, str] = {}  # the last call of a block -> what stands behind that
        self._places: dict[str, int] = {}  # call in the text -> where it stood, in what is shown
        self._parser: Parser | None = None
        self._new_id, self._id_for_client = new_id, id_for_client
        self._given: dict[int, CallId] = {}  # the server's own ids of native calls
        self._ids: dict[tuple[str, int], tuple[str, str]] = {}  # (native or text, index) -> (id, name)
        self._reclassified = False
        self._half = ""  # of a character that the server has sent in two pieces
        # Not lists: a text for each token would take ten times the memory.
        self._wrote = StringIO()
        self._shown = StringIO()
        self._fold_at = FOLDED_AFTER
        self._blocks: dict[str, tuple[int, int]] = {}  # call id -> where it stands in that, as a block of code
        self._thought = StringIO()
        self._has_reasoning = False  # apart from the text
        # Native calls (True) and those in the text that have not been made in the other way.
        self._unpaired: tuple[dict[str, list[AskedCall]], dict[str, list[AskedCall]]] = {}, {}
        self._written: list[AskedCall] = []  # the calls in the text, rejected ones included
        self._twins: dict[str, AskedCall] = {}  # of those, by id: the native call that is made in its place
        self._sealed: dict[int | None, OpaqueMetadata] = {}  # of a native call, or of all
        self._switched: FallbackUsed | None = None

    def add(self, piece: Piece) -> Iterable[AgentEvent]:
        return self._add_text(piece.text) if type(piece) is TextChunk else self._add_other(piece)

    def _add_text(self, text: str) -> Sequence[AgentEvent]:
        """Nearly every piece, and nearly always it is text: without a generator."""
        if self._half or (not text.isascii() and _HALF.search(text)):
            text = self._whole(text)
        self._wrote.write(text)
        self.characters += len(text)
        if self.characters >= self._fold_at:
            self._fold()
        self._parser = self._parser or self._new_parser()
        found = self._parser.feed(text)
        if len(found) == 1 and type(shown := found[0]) is Text:
            words = text if str.__eq__(shown, text) else shown.text  # as a rule the same string is kept twice
            self._shown.write(words)
            return (TextDelta(words),)
        return [event for seen in found for event in self._see(seen, "text")]

    def _fold(self) -> None:
        """Join the pieces so far: a StringIO keeps each as it came until its value is asked for.

        It keeps that value, too: where all is shown that was written, both are one text.
        """
        self._fold_at = self.characters + self.characters // 16 + FOLDED_AFTER
        self._thought.getvalue()
        written = self._wrote.getvalue()
        if self._shown.getvalue() == written:
            self._shown = StringIO()
            self._shown.write(written)

    def _whole(self, text: str) -> str:
        """Return the text up to its last whole character: clients count one where its two halves meet."""
        text = f"{self._half}{text}".encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
        end = len(text) - ("\ud800" <= text[-1:] <= "\udbff")
        self._half = text[end:]
        return text[:end]

    def _add_other(self, piece: Piece) -> Iterator[AgentEvent]:
        match piece:
            case TokenUsage():
                self.used = piece if piece.prompt_tokens or piece.completion_tokens else None
            case Finished(reason):
                self.stopped = reason
            case ProviderNotice(code, message, retry_at):
                yield Notice(code, message, retry_at=retry_at)
            case FallbackUsed(wanted, answered_by, reason):
                self._switched = piece
                told = f"{wanted} could not answer ({reason}): {answered_by} answers."
                yield Notice("fallback", told, wanted, answered_by, reason)
            case PictureChunk(data) if self._keep_file:
                self.first_at = self.first_at or self._clock()
                self._keep_file(file := file_of(data))
                self.pictures.append(file.attachment)
                yield image_event(file)
            case CallId(index):
                self._given[index] = piece
            case MetadataChunk(sealed, index):
                if not unfit(sealed.fields):
                    self._sealed[index] = sealed
            case Thought() | CallOpened() | CallDelta() | Call() | BadCall():
                self.first_at = self.first_at or self._clock()
                if isinstance(piece, Thought | CallDelta):
                    self.characters += len(piece.text)
                    self._has_reasoning |= isinstance(piece, Thought)
                yield from self._see(piece, NATIVE)

    def end(self) -> Iterator[AgentEvent]:
        """End the stream; emit what the parser still held."""
        if self._half:
            self._half = ""
            yield from self._add_text("\ufffd")
        if self._parser is None:
            return
        for seen in self._parser.close(cut=self.is_cut):
            yield from self._see(seen, "text")
        if self._shown.tell() in (after for _, after in self._blocks.values()):
            yield from self._see(Text("\n"), "text")  # the next reply begins a line
        self._raw |= {self._id("text", index): written for index, written in self._parser.raw.items()}
        self._closers = {self._id("text", index): "".join(marks) for index, marks in self._parser.closers.items()}
        excerpts = {written: written[:RAW_LIMIT] for written in set(self._raw.values())}  # one for all calls of a block
        for id in self._raw.keys() & self._made.keys():
            self._made[id] = replace(self._made[id], raw=excerpts[self._raw[id]])

    @property
    def calls(self) -> list[AskedCall]:
        return [*self._made.values()]

    @property
    def text_calls(self) -> list[AskedCall]:
        """Return the calls in the text, those included that could not be understood."""
        return [call for call in self._made.values() if call.dialect != NATIVE]

    def is_in_text(self, call: str) -> bool:
        """Return True if this call stands in the text of the answer."""
        return call in self._places

    def leave_in_text(self, calls: Collection[str]) -> dict[str, str]:
        """Let the blocks of these calls be text again, which is shown where they stood. Return each, by its first call.

        A block with several calls is left whole. The reply must have ended.
        """
        blocks = dict.fromkeys((id(self._raw.get(call, "")) for call in calls), False)  # and if it has been put back
        left, shown, end, parts = dict[str, str](), self._shown.getvalue(), 0, list[str]()
        for call in [one.id for one in self.text_calls]:
            if id(raw := self._raw.get(call, "")) not in blocks:
                continue
            del self._made[call]
            self.refused.pop(call, None)
            left[call] = ("" if blocks[id(raw)] else raw) + self._closers.get(call, "")
            blocks[id(raw)] = True
            parts += shown[end : (place := max(end, self._places[call]))], left[call]
            end = place
        self._shown = StringIO()
        self._shown.write("".join([*parts, shown[end:]]))
        return left

    @property
    def is_cut(self) -> bool:
        """Return True if the stream broke off, or a limit or filter ended it."""
        return self.stopped in CUT_OFF

    @property
    def called_natively(self) -> bool:
        return any(source == NATIVE for source, _ in self._ids)

    @property
    def begins_too_often(self) -> bool:
        """Return True once more of the text would cost more than any answer is worth."""
        return self._parser is not None and self._parser.tried > MOST_BEGINNINGS

    @property
    def has_started(self) -> bool:
        """Return True once the model has written anything."""
        return bool(self.characters or self._ids or self.pictures)

    @property
    def may_be_thought(self) -> bool:
        """Return True while what is shown may turn out to be reasoning: nobody said what the prompt ends with."""
        return not (self._hint or self._thought.tell())

    @property
    def has_ended_open_thought(self) -> bool:
        """Return True if a thought was closed, with the usual mark, that the prompt had begun unknown to us."""
        return self._reclassified and not self._hint and "</think>" in self._wrote.getvalue()

    @property
    def is_only_thought(self) -> bool:
        """Return True if a whole reply was taken for a thought because the prompt is believed to begin one."""
        return bool(self._hint and self.stopped == "stop" and self._thought.tell()) and not (self.shown or self._made)

    def show_thought(self) -> TextDelta:
        """Show what was taken for a thought: it is the answer. Reasoning that was sent cannot be taken back."""
        text = self._thought.getvalue()
        self._shown.write(text)
        return TextDelta(text)

    @property
    def has_thought_apart(self) -> bool:
        """Return True if the server has sent reasoning apart from an answer."""
        return self._has_reasoning and bool(self._wrote.tell() or self.called_natively)

    @property
    def is_whole_thought(self) -> bool:
        """Return True if the reply came whole as reasoning, which its server has not signed, and ended as it should."""
        return self._has_reasoning and self.stopped == "stop" and not (self._wrote.tell() or self._ids or self._sealed)

    @property
    def thought_ends_in_calls(self) -> bool:
        """Return True if this reasoning, read as text, has no sign of a thought and ends in its calls."""
        thought = self._thought.getvalue().rstrip()
        if (
            not thought.endswith(CALL_ENDS)
            or len(thought) > LONGEST_CALLS
            or self._text_calls(False) is TextCalls.IGNORED
        ):
            return False
        parser = Parser(self._tools, fences=self._fences())
        found = [*parser.feed(thought), *parser.close()]
        first = next((at for at, seen in enumerate(found) if isinstance(seen, CallOpened | Call | BadCall)), None)
        if first is None or any(isinstance(seen, Thought | Reclassified) for seen in found):
            return False
        return not any(isinstance(seen, Text) and seen.text.strip() for seen in found[first:])

    def take_thought(self, *, calls: bool) -> Iterator[AgentEvent]:
        """Read the reasoning as the text that it is, with or without calls in it.

        Reasoning that was sent cannot be taken back.
        """
        text, characters = self._thought.getvalue(), self.characters
        self._parser = self._new_parser() if calls else Parser({}, fences=False, calls=False)
        for begin in range(0, len(text), SLICE):
            yield from self.add(TextChunk(text[begin : begin + SLICE]))
        yield from self.end()
        self.characters = characters

    @property
    def shown(self) -> str:
        return self._shown.getvalue()

    @property
    def prose(self) -> str:
        """The text that is shown, without the blocks of code that are calls."""
        shown, end, parts = self._shown.getvalue(), 0, list[str]()
        for begin, after in self._blocks.values():
            parts.append(shown[end:begin])
            end = after
        return "".join([*parts, shown[end:]])

    def message(self, *, cut: bool = False) -> Message:
        self._fold()
        return Message(
            "assistant",
            self._wrote.getvalue(),
            calls=tuple(self._made.values()),
            reasoning=self._thought.getvalue(),
            shown=self.shown,
            cut=cut,
            sealed=self._sealed.get(None),
            attachments=tuple(self.pictures),
            switched=asdict(self._switched) if self._switched else None,
        )

    def _new_parser(self) -> Parser:
        """Return the parser of the text, which begins."""
        self.first_at = self.first_at or self._clock()
        mode = self._text_calls(self.called_natively)
        self.doubts_text = mode is TextCalls.DOUBTED
        self._hint = suffix = self._prompt_suffix()
        return Parser(
            self._tools,
            fences=self._fences(),
            prompt_suffix=suffix,
            calls=mode is not TextCalls.IGNORED,
            excerpt=LONGEST_BLOCK if self.doubts_text else RAW_LIMIT,
        )

    def _see(self, seen: ParseEvent, source: str) -> Iterator[AgentEvent]:
        match seen:
            case Text(text):
                self._shown.write(text)
                yield TextDelta(text)
            case Thought(text):
                self._thought.write(text)
                yield ReasoningDelta(text)
            case CallOpened(index, name):
                yield ToolDelta(call_id := self._id(source, index, name), "", name)
                if name == CREATE_DOCUMENT and self._writes_document(name, source):
                    self._drafts.open(call_id, CONTENT)
            case CallDelta(index, text):
                yield from self._drafts.feed(self._id(source, index), text)
            case Call():
                yield from self._see_call(seen, source)
            case BadCall(index, raw, reason):
                call = self._id(source, index)
                name = self._ids[source, index][1]
                self._made[call] = rejected = self._asked(call, name, {}, source, index)
                if source != NATIVE:
                    self._written.append(rejected)
                    self._raw[call] = raw
                self.refused[call] = reason
                yield ToolRejected(reason, call, name or None)
            case Reclassified(characters, calls):
                drafts = self._written[max(0, len(self._written) - calls) :]
                yield from self._reclassify(characters + self._characters_of_blocks(drafts))
                yield from self._take_back(drafts)

    def _writes_document(self, name: str, source: str) -> bool:
        certain = source == NATIVE or not self.doubts_text
        return certain and name in self._tools and not self._is_handed(name)

    def _see_call(self, seen: Call, source: str) -> Iterator[AgentEvent]:
        index, name, dialect, schema = seen.index, seen.name, seen.dialect, self._tools.get(seen.name, {})
        arguments, repairs = seen.arguments, seen.repairs
        call_id = self._id(source, index, name)
        if source == NATIVE:  # the parser has done so with those in the text
            arguments, fitted = read_arguments(arguments, schema)
            repairs = (*repairs, *fitted)
        if reason := unfit(arguments):
            yield from self._see(BadCall(index, "", reason), source)
            return
        if dialect == FENCED.name and not self._is_handed(name):
            yield self._show_block(call_id, fenced_call(name, arguments, schema))
        yield from self._take(self._asked(call_id, name, arguments, dialect, index))
        if repairs:
            yield Notice(REPAIRED, f"A call of {name} was repaired: {' '.join(repairs)}")

    def _reclassify(self, characters: int) -> Iterator[AgentEvent]:
        """Move the end of what was shown to the thoughts."""
        begin = max(0, self._shown.tell() - characters)
        self._shown.seek(begin)
        thought = self._shown.read()
        self._shown.seek(begin)
        self._shown.truncate()
        if thought:
            self._reclassified = True
            self._thought.write(thought)
            yield TextReclassified(len(thought))
            yield ReasoningDelta(thought)

    def _characters_of_blocks(self, drafts: Sequence[AskedCall]) -> int:
        """Return how much of the shown text is blocks of these calls, which are forgotten."""
        blocks = [self._blocks.pop(draft.id, (0, 0)) for draft in drafts]
        return sum(after - begin for begin, after in blocks)

    def _take_back(self, drafts: Sequence[AskedCall]) -> Iterator[AgentEvent]:
        """Take the last calls in the text out of the reply, as if they had never been made."""
        del self._written[len(self._written) - len(drafts) :]
        for draft in reversed(drafts):
            same = canonical({draft.name: draft.arguments})
            unpaired = self._unpaired[False].get(same)
            if unpaired and unpaired[-1] is draft:
                unpaired.pop()
            elif twin := self._twins.pop(draft.id, None):
                self._unpaired[True].setdefault(same, []).append(twin)
        for draft in drafts:
            self.refused.pop(draft.id, None)
            self._places.pop(draft.id, None)
            if self._made.pop(draft.id, None):  # else a native call is made in its place
                yield ToolRejected(THOUGHT, draft.id, draft.name or None)

    def _show_block(self, call: str, block: str) -> TextDelta:
        """Show a call that is a block of code, on lines of its own; what follows it begins with a line end."""
        begin = self._shown.tell()
        self._shown.seek(max(0, begin - 1))
        before = self._shown.read()
        text = block if before in ("", "\n") else f"\n{block}"
        self._shown.write(text)
        self._blocks[call] = begin, self._shown.tell()
        return TextDelta(text, call)

    def _take(self, call: AskedCall) -> Iterator[AgentEvent]:
        """One more call, unless it is there already, made in the other way."""
        native = call.dialect == NATIVE
        if not native:
            self._written.append(call)
        same = canonical({call.name: call.arguments})
        others = self._unpaired[not native].get(same)
        if not others:
            self._unpaired[native].setdefault(same, []).append(call)
            self._made[call.id] = call
            return
        twin = others.pop(0)
        if native:
            del self._made[twin.id]
            self._made[call.id] = call
        written = twin if native else call
        self._twins[written.id] = call if native else twin
        yield ToolRejected(TWICE, written.id, written.name)

    def _asked(self, id: str, name: str, arguments: Arguments, dialect: str, index: int) -> AskedCall:
        """Return the call, a native one with what its server wants back."""
        if dialect != NATIVE:
            return AskedCall(id, name, arguments, dialect)
        call = AskedCall(id, name, arguments, dialect, self._sealed.get(index))
        given = self._given.get(index)
        return replace(call, given=given.id, giver=given.origin) if given else call

    def _id(self, source: str, index: int, name: str = "") -> str:
        if (source, index) not in self._ids:
            given = self._given.get(index) if source == NATIVE else None
            id = (self._id_for_client(given.id) if given else "") or self._new_id()
            self._ids[source, index] = (id, name)
            if source != NATIVE:
                self._places[id] = self._shown.tell()
        return self._ids[source, index][0]
