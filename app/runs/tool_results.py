"""Tool results for the model: head and tail of a long one; the whole is stored and can be read in pages."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from hashlib import sha256
from typing import Any

from msgspec import Struct

from app.core.attachments import Attachment, File
from app.core.events import AgentEvent, Notice, ToolApp
from app.core.messages import AskedCall
from app.models.http.json_body import encodable
from app.models.tokens.cutting import head_and_tail
from app.storage.sessions import ResultPart, ResultRow
from app.transcript.conversation import Conversation
from tools.builtin.read_result import NAME
from tools.mcp.apps import MAX_PAGE, App
from tools.tool import Kept, ReadResult

MOST_KEPT = 2_000_000  # characters of one result
NOTES = 140  # room for the note about the rest
MISSING = "The app of {name} is not shown: {why}."

Read = Callable[[str, str, int, int], Awaitable[ResultPart | None]]
"""Read a piece of a kept result: session, call, offset, characters. Raises StoreFailed."""


async def nothing(session: str, call: str, offset: int, size: int) -> None:
    """A Read where nothing is kept."""


class Results(Struct, frozen=True):
    """The results of one run. `characters` is the longest result that the model receives whole."""

    characters: int = 8000
    read: Read = nothing

    def shown(self, text: str, call: AskedCall, *, readable: bool) -> tuple[str, str]:
        """Return the result as the model receives it, and its end that says how to read the rest, if it may."""
        if len(text) <= self.characters:
            return text, ""
        half = (self.characters - NOTES) // 2
        # At the end, where it stays when the result is made shorter still.
        how = f'\n[{NAME}(call="{call.id}", offset={half}) shows what is left out.]' if readable else ""
        return head_and_tail(text, half) + how, how

    def keep(
        self, text: str, run: str, call: AskedCall, conversation: Conversation, written: str | None = None
    ) -> None:
        """Store the whole result with its message, both or none, and the output as it was `written`, if that is
        another text."""
        if len(text) > self.characters or written is not None:
            name, raw = encodable(call.name), written if written is None else _storable(written)
            conversation.record(
                ResultRow(conversation.session, run=run, call=call.id, name=name, text=_storable(text), written=raw)
            )

    def of(self, conversation: Conversation) -> ReadResult:
        """Reads the results of this conversation, and of no other."""

        async def read(call: str, offset: int, size: int) -> Kept | None:
            answer = next((one for one in conversation.messages if one.role == "tool" and one.call == call), None)
            if answer is None:
                return None
            kept = await self.read(conversation.session, call, 0, MOST_KEPT)
            # Redacted before it is cut: a secret that was learned since may lie across the pages.
            whole = conversation.redactor.redact(kept.text) if kept else answer.text
            return Kept(whole[offset : offset + size], len(whole), answer.untrusted)

        return read


def _storable(text: str) -> str:
    whole = text if len(text) <= MOST_KEPT else head_and_tail(text, MOST_KEPT // 2)
    return encodable(whole).replace("\0", "\ufffd")  # at which a database may end a text


async def app_events(
    call: AskedCall, app: App, conversation: Conversation, of_app: list[dict[str, Any]] | None
) -> Sequence[AgentEvent]:
    """Keep what is shown, without secrets; an app that made the call itself gets the result, and nothing is shown."""
    result = await asyncio.to_thread(conversation.redactor.redact_value, dict(app.result))
    if of_app is not None:
        of_app.append(result)
        return ()
    texts = await asyncio.to_thread(conversation.redactor.redact, app.html), json.dumps(result)
    if why := app.problem or ("its result is too long" if len(texts[1]) > MAX_PAGE else ""):
        return [Notice("app_missing", MISSING.format(name=call.name, why=why))]
    file, whole = (_kept(text.encode("utf-8", "replace"), conversation) for text in texts)
    csp = {kind: list(domains) for kind, domains in app.csp.items()}
    return [
        ToolApp(call.id, call.name, server=app.server, uri=app.uri, file=file, result=whole, csp=csp, border=app.border)
    ]


def _kept(data: bytes, conversation: Conversation) -> str:
    digest = sha256(data).hexdigest()
    conversation.keep_file(File(Attachment(digest, "text/html", len(data), ""), data))
    return digest
