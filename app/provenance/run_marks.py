"""Untrusted text in one run: what it reads from outside is marked, and known text that comes another way is untrusted.

Each message is looked at as it is appended to the conversation (`RunMarks.watch`), so that no way in is forgotten: the
person's words, a client's history, results of any tool, memories beside a message. Long texts are read before, beside
the event loop. Ordinary text is not marked: stock phrases, descriptions of tools, the prompt's persona, and what
the conversation had from trusted sources before.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from weakref import ref

from msgspec import Struct, field
from msgspec.structs import replace

from app.core.events import Notice
from app.core.messages import Message
from app.policy.gate import Gate
from app.provenance.mark_index import KnownText, MarkIndex, Source, packed
from app.provenance.marks import bare, is_long, words_of
from app.storage.sessions import UntrustedMarks
from app.transcript.conversation import Conversation
from app.transcript.run_request import RunRequest
from app.transcript.titles import title_of
from tools.tool import Tool

KNOWN = "untrusted_text"  # the code of a notice
NOTICE = (
    "{what} repeats text of {place}, which is untrusted. So is this conversation from now on. "
    "Text that you trust is no longer taken for untrusted once that conversation is deleted."
)
A_MESSAGE, INSTRUCTIONS = "The message", "The system text of the request"
MOST_LEARNED = 200  # messages, the newest
STOCK_PHRASES = Path(__file__).with_name("stock_phrases.txt")


class RunMarks(Struct, weakref=True):
    """`tool` finds the tool of a name. `ordinary` returns texts whose passages are ordinary."""

    index: MarkIndex
    principal: str
    gate: Gate
    tool: Callable[[str], Tool | None]
    ordinary: Callable[[], Iterable[str]] = tuple
    instructions: str = ""  # of a client
    _known: KnownText | None = None
    _watched: ref[Conversation] | None = None  # which has `watch`: a cycle would wait for the garbage collector
    _outside: bool = False  # messages that are untrusted hold text from outside
    _found: dict[str, Source | None] = field(default_factory=dict)  # of texts that were read before
    _marks: dict[str, Sequence[int]] = field(default_factory=dict)  # of results, by their call
    _common: set[int] | None = None  # until something is learned
    _learned: int = 0  # messages
    _has_untrusted: bool = False
    _title: str = ""

    async def enter(self, conversation: Conversation, turn: RunRequest | None) -> RunRequest | None:
        """Begin to watch a conversation; return the turn, untrusted if the client's instructions are.

        Raises StoreFailed.
        """
        self._known, self._watched = await self.index.known(self.principal), ref(conversation)
        conversation.watch = self.watch
        if turn is None:
            return None
        self._outside = turn.outside
        await self.expect(dict(_from_outside(turn)))
        await self.read([turn.message, *(one.text for one in turn.history if one.role != "assistant")])
        if self.instructions and await self._is_known(INSTRUCTIONS, self.instructions):
            return replace(turn, untrusted=True)
        return turn

    async def expect(self, outside: Mapping[str, str]) -> None:
        """Mark long texts from outside, by their call or else by themselves, before they are appended."""
        if outside:
            self._marks |= await asyncio.to_thread(self._marks_of_long, self._messages(), outside)

    def watch(self, message: Message) -> Message:
        """Mark the text of a message that is untrusted; return one that repeats such text as untrusted."""
        if message.role == "assistant" or self._known is None:  # its own words are as trusted as what it has read
            return message
        if message.untrusted:
            self._record(message)
            is_own = message.sender == "person" and not self.source_of(message.text)  # what came with it is untrusted
            return message if is_own or message.sender != "person" else replace(message, sender="client")
        if not self._known.sources:
            return message
        text = message.text
        found = self._found.pop(text) if text in self._found else self.source_of(text)
        if not (found := found or self.source_of(message.recalled)):
            return message
        self._report(f"The result of {message.name or 'a tool'}" if message.role == "tool" else A_MESSAGE, found)
        return replace(message, untrusted=True)

    def source_of(self, text: str) -> Source | None:
        """Return the untrusted text which this principal's conversations have read, if this one repeats such text."""
        return self._known.source_of(text, self._counts) if self._known and text else None

    async def is_known(self, tool: str, result: str) -> bool:
        """Return True if the result of a trusted tool repeats untrusted text; then the run is tainted."""
        return await self._is_known(f"The result of {tool}", result)

    async def take_result(self, call: str, tool: Tool | None, *texts: str) -> None:
        """Mark the texts of an untrusted result once it is answered; none if it is withheld."""
        if tool is None or tool.untrusted:
            self._marks[call] = await asyncio.to_thread(self._marks_of, self._messages(), *texts) if texts else ()

    async def read(self, texts: Iterable[str]) -> None:
        """Look for known text in those that are long, before they are appended."""
        for text in texts:
            if is_long(text) and self._known and self._known.sources:
                self._found[text] = await asyncio.to_thread(self.source_of, text)

    async def _is_known(self, what: str, text: str) -> bool:
        await self.read([text])
        found = self._found[text] if text in self._found else self.source_of(text)
        if found:
            self._report(what, found)
        self._found[text] = found  # for `watch`
        return bool(found)

    def _report(self, what: str, found: Source) -> None:
        """Taint the run, and say why once: no call of it shows that."""
        is_known = self.gate.policy.tainted or any(one.untrusted for one in self._messages())
        if self._conversation and not is_known:
            self._conversation.log_event(Notice(KNOWN, NOTICE.format(what=what, place=found.place)))
        self.gate.taint()

    def _counts(self, source: Source) -> bool:
        """Return False for a result of a tool whose results are trusted by now."""
        tool = self.tool(source.tool) if source.tool else None
        return tool is None or tool.untrusted or tool.handed

    def _record(self, message: Message) -> None:
        """Mark an untrusted message. The words of models, and what repeats other conversations, have marks already."""
        call, tool = message.call or "", self.tool(message.name) if message.name else None
        is_outside = self._outside if message.role != "tool" else tool is None or tool.handed or tool.untrusted
        if not is_outside or self._known is None or self._conversation is None:
            return
        marks = self._marks.pop(call or message.text, None)
        marks = self._marks_of(self._messages(), message.text) if marks is None else marks
        if not marks:
            return
        name = (message.name or "a tool of the client") if message.role == "tool" else ""
        row = UntrustedMarks(
            self._conversation.session,
            run=self._conversation.run,
            call=call,
            principal=self.principal,
            place=name,
            at=self.index.new_time(),
            digests=packed(marks),
        )
        self._conversation.record(row)
        if not self._title:
            asked = next((one.text for one in self._conversation.messages if one.role == "user"), message.text)
            self._title = title_of(asked)
        self._known.add(row, self._title)

    @property
    def _conversation(self) -> Conversation | None:
        return self._watched() if self._watched else None

    def _messages(self) -> list[Message]:
        return list(self._conversation.messages) if self._conversation else []

    def _marks_of(self, messages: Sequence[Message], *texts: str) -> list[int]:
        """The digests of these texts, without those of ordinary text."""
        self._learn(messages)
        assert self._known
        found = dict.fromkeys(one for text in texts for one in self._known.digester.marks(text))
        return [one for one in found if one not in (self._common or ())]

    def _marks_of_long(self, messages: Sequence[Message], texts: Mapping[str, str]) -> dict[str, Sequence[int]]:
        self._learn(messages)
        return {key: self._marks_of((), text) for key, text in texts.items() if is_long(text)}

    def _learn(self, messages: Sequence[Message]) -> None:
        """Take the texts of trusted messages; of those that the model has written, what came before untrusted text."""
        assert self._known
        digester, begin = self._known.digester, max(self._learned, len(messages) - MOST_LEARNED)
        texts = [] if self._common else [*self.ordinary(), *stock_phrases()]
        self._has_untrusted = self._has_untrusted or any(one.untrusted for one in messages[:begin])
        for message in messages[begin:]:
            self._has_untrusted = self._has_untrusted or message.untrusted
            if not (message.untrusted or (self._has_untrusted and message.role == "assistant")):
                texts += [message.text, *(json.dumps(call.arguments, ensure_ascii=False) for call in message.calls)]
        self._learned = max(self._learned, len(messages))
        for text in texts:
            self._common = set() if self._common is None else self._common
            self._common.update(digest for _, digest in digester.shingles(words_of(bare(text))))


def _from_outside(turn: RunRequest) -> Iterator[tuple[str, str]]:
    """Texts from outside that a turn brings, by their call, or else by themselves."""
    yield from ((one.call, one.text) for one in turn.results)
    for one in turn.history:
        if one.role == "tool" or (one.untrusted and one.role == "user"):
            yield one.call or one.text, one.text
    if turn.outside:
        yield turn.message, turn.message


@cache
def stock_phrases() -> Sequence[str]:
    """Texts that stand in many places: licences, and lines below mails and on pages."""
    return STOCK_PHRASES.read_text().split("\n\n")


def ordinary_texts(tools: Iterable[Tool], *texts: str) -> Iterator[str]:
    """Texts of the prompt, and the descriptions of tools that are none of MCP servers."""
    yield from (tool.description for tool in tools)
    yield from texts
