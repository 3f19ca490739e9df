"""Quoting is not calling: a call in text that stands in what the model has read is no decision of its own.

Native calls are: a model makes them on purpose. In text nothing tells a call from a quotation but where it comes from,
so before a text call is decided on, all is searched that the model had read and not written when it wrote the call:
results, messages, summaries, what persons and servers put into the prompt. Our own worked examples are no such text.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from json import dumps
from types import MappingProxyType

from msgspec import Struct

from app.context.persona import Persona
from app.context.prompt import Override
from app.core.messages import AskedCall, Message, for_models, in_words
from app.models.wire.native_calls import NATIVE
from app.provenance.quoted_text import QuotedCall, Work, WrittenCall
from app.provenance.read_texts import Library, Source
from app.transcript.conversation import Conversation
from app.transcript.right_form import without_right_form
from parsing.dialects import FENCED
from tools.base.patterns import lazy_pattern
from tools.builtin.read_result import NAME as READ_RESULT
from tools.tool import Tool
from tools.toolbox import Toolbox

IN_TEXT = "text"  # the dialect of a call that could not be understood
MOST_NAME = 80  # characters of a tool's name in the words for people
# Our note below a result that was cut (app.results): the id in it is drawn by us, after the result was written.
_OUR_NOTE = lazy_pattern(rf"\n\[{READ_RESULT}\(call=\"(?P<call>\w+)\", offset=\d+\) shows what is left out\.\]\Z")


Others = Callable[[str], Awaitable[Sequence[Source]]]
"""Returns the texts that a session's model has read besides its messages. Raises StoreFailed."""


async def no_others(session: str) -> Sequence[Source]:
    return ()


class Provenance(Struct):
    """Finds where the text calls of one run come from."""

    others: Others = no_others
    _library: Library | None = None  # most runs have no call in text
    _looked_back: bool = False

    async def quotations(
        self, calls: Iterable[AskedCall], conversation: Conversation, toolbox: Toolbox
    ) -> dict[str, str]:
        """Return where the model has read each quoted call, by the call's id. Raises StoreFailed."""
        asked = [conversation.redactor.redact_value(call) for call in calls if call.dialect != NATIVE]
        if not asked:
            return {}
        others = conversation.redactor.redact_value(list(await self.others(conversation.session)))
        messages = conversation.messages[: place_of(asked[0], conversation.messages)]
        tools = toolbox.schemas
        normalise_call = toolbox.normalise_call
        work = Work()
        found = dict[str, str]()
        library = self._library = Library() if self._library is None else self._library
        for made, before in (*self._earlier(conversation.begins, messages), (asked, messages)):
            sources = [*others, *filter(None, map(source_of, before))]

            def search(made: Sequence[AskedCall] = made, sources: Sequence[Source] = sources) -> dict[str, str]:
                wanted = {call.id: QuotedCall(_written(call), tools, normalise_call) for call in made}
                return library.quotations(wanted, sources, work)

            found = await asyncio.to_thread(search)
        return found

    def _earlier(
        self, begins: int, messages: Sequence[Message]
    ) -> Iterator[tuple[Sequence[AskedCall], Sequence[Message]]]:
        """Calls of this run from before the server was restarted, and what had been read by then."""
        if self._looked_back:
            return
        self._looked_back = True
        for at, message in enumerate(messages[begins:], begins):
            if made := [call for call in message.calls if call.dialect != NATIVE]:
                yield made, messages[:at]


def _written(call: AskedCall) -> WrittenCall:
    bad = call.dialect == IN_TEXT
    return WrittenCall(call.name, call.arguments, call.dialect == FENCED.name, call.raw, bad)


def place_of(call: AskedCall, messages: Sequence[Message]) -> int:
    """The position of the message that the call was made in: the model had not read what came later."""
    for at in range(len(messages) - 1, -1, -1):
        if any(one.id == call.id for one in messages[at].calls):
            return at
    return len(messages)


def source_of(message: Message) -> Source | None:
    match message.role:
        case "assistant":
            return None
        case "tool":
            return Source(f"the result of {(message.name or 'a tool')[:MOST_NAME]}", _without_our_note(message))
        case "user":
            texts = (one.text for one in message.attachments if one.ability)
            return Source("a message of this conversation", "\n".join((in_words(for_models(message)), *texts)))
    return Source("the prompt", message.text)


def _without_our_note(message: Message) -> str:
    # No such example is below the words of third parties: they may only look so, where a client's ids can be guessed.
    text = message.text if message.untrusted else without_right_form(message.text, message.call)
    note = _OUR_NOTE.search(text)
    return text[: note.start()] if note and note["call"] == message.call else text


def of_prompt(
    persona: Persona,
    override: Override | None,
    tools: Iterable[Tool],
    project: str = "",
    servers: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[Source]:
    """Return the third-party text in the prompt; `tools` are those of added servers, `servers` their instructions."""
    yield Source("the persona", f"{persona.soul}\n\n{persona.user}")
    if project:
        yield Source("the instructions of the project", project)
    for server, text in servers.items():
        yield Source(f"the instructions of the MCP server {server[:MOST_NAME]}", text)
    if override:
        yield Source("the system text of the request", override.text)
    for tool in tools:
        yield Source(f"the description of {tool.name[:MOST_NAME]}", f"{tool.description}\n\n{dumps(tool.parameters)}")


def of_profile(prompt: str) -> Iterator[Source]:
    """Return the text that profiles add to the prompt."""
    if prompt:
        yield Source("the profile of this run", prompt)


def of_summaries(texts: Iterable[str]) -> Iterator[Source]:
    return (Source("the summary of this conversation", text) for text in texts)
