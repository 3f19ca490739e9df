"""Sessions as files: a row of EXPORTS each. Secrets are redacted, also those that have become one since."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator, Mapping
from html import escape
from typing import Any

from markdown_it import MarkdownIt
from msgspec import Struct, field

from app.core.attachments import SEEN
from app.core.messages import Message, rejoined
from app.redaction.redactor import Redactor
from app.storage.sessions import SessionRow
from app.storage.store import Store
from parsing.dialects import FENCED
from routes.texts import text
from routes.transcripts.formats import Item, items_of
from tools.base.patterns import lazy_pattern

TICKS = lazy_pattern("`+")
POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
STYLE = """
:root { color-scheme: light dark; }
body { font: 16px/1.55 system-ui, sans-serif; max-width: 46rem; margin: 2rem auto; padding: 0 1rem; }
body, pre { overflow-wrap: anywhere; white-space: pre-wrap; }
"""


class Exported(Struct):
    """A session: `fields` as JSON, with its messages, and the bytes of its files as base64 by their SHA-256."""

    fields: dict[str, Any]
    files: dict[str, str] = field(default_factory=dict)
    words: Mapping[str, str] = {}  # the environment that says in which language headings are

    @property
    def title(self) -> str:
        return self.fields["title"] or text("export.untitled", self.words)


class Export(Struct, frozen=True):
    media_type: str
    ending: str
    write: Callable[[Exported], str]


async def exported(
    store: Store, row: SessionRow, redactor: Redactor, show: Callable[[Message], Item], words: Mapping[str, str]
) -> Exported:
    """Read a session; `show` makes of a message what its reader may see. Raises StoreFailed."""
    messages = await store.messages(row.id)
    documents = []
    for one in await store.documents(row.id):
        version = await store.document_version(one.id, one.version)
        documents.append({"title": one.title, "kind": one.kind, "text": version.text if version else ""})
    fields = {"id": row.id, "title": row.title, "created": row.created, "documents": documents}
    fields["messages"] = [dict(show(one)) for one in rejoined(messages)]
    files = {}
    for sha256 in {attachment.sha256 for one in messages for attachment in one.attachments}:
        if data := await store.file(sha256, row.id):
            files[sha256] = base64.b64encode(data).decode()
    return Exported(redactor.redact_value(fields), files, words)


def as_json(one: Exported) -> str:
    return json.dumps(one.fields | {"files": one.files}, indent=1)


def as_items(one: Exported) -> str:
    """The body of a request to /v1/responses that goes on with the conversation, but for its model."""
    items = [item for message in one.fields["messages"] for item in items_of(message, one.files)]
    return json.dumps({"input": items, "metadata": {"session": one.fields["id"], "title": one.title}}, indent=1)


def as_markdown(one: Exported) -> str:
    parts = (part if isinstance(part, str) else f"({part.get('name') or part['media_type']})" for part in _parts(one))
    return "\n\n".join(filter(None, parts)) + "\n"


def as_html(one: Exported) -> str:
    """One file without scripts, that reads nothing from elsewhere."""
    renderer = MarkdownIt("commonmark", {"html": False}).enable("table").disable("image")
    body = (renderer.render(part) if isinstance(part, str) else _picture(part, one.files) for part in _parts(one))
    head = f'<!doctype html><meta charset="utf-8"><meta http-equiv="Content-Security-Policy" content="{POLICY}">'
    head += '<meta name="viewport" content="width=device-width"><meta name="referrer" content="no-referrer">'
    return f"{head}\n<title>{escape(one.title)}</title>\n<style>{STYLE}</style>\n{''.join(body)}"


def _picture(part: Item, files: Mapping[str, str]) -> str:
    name, data = escape(part.get("name") or part["media_type"]), files.get(part["sha256"])
    if data is None or part["media_type"] not in SEEN:
        return f"<p>({name})</p>\n"
    return f'<p><img alt="{name}" src="data:{part["media_type"]};base64,{data}"></p>\n'


def _parts(one: Exported) -> Iterator[str | Item]:
    """Pieces of Markdown, and attachments."""
    yield f"# {one.title}"
    for message in one.fields["messages"]:
        role, words = message["role"], message.get("shown") or message["text"]
        if role == "tool":
            yield f"**{text('export.result', one.words, name=message.get('name') or 'tool')}**\n\n{fenced(words)}"
        elif role != "system":
            yield f"## {text('export.you' if role == 'user' else 'export.assistant', one.words)}"
            yield words
        for call in message.get("calls", ()):
            if call["dialect"] != FENCED.name or f"```{call['name']}\n" not in words:
                arguments = json.dumps(call["arguments"], indent=2, ensure_ascii=False)
                yield f"**{call['name']}**\n\n{fenced(arguments, 'json')}"
        yield from message.get("attachments", ())
    for document in one.fields["documents"]:
        yield f"# {text('export.document', one.words, title=document['title'])}"
        yield document["text"]


def fenced(words: str, language: str = "") -> str:
    """A block of code, whose fence is longer than any inside."""
    fence = "`" * max(3, *(len(ticks) + 1 for ticks in TICKS.findall(words)), 3)
    return f"{fence}{language}\n{words}\n{fence}"


EXPORTS: Mapping[str, Export] = {
    "markdown": Export("text/markdown", "md", as_markdown),
    "html": Export("text/html", "html", as_html),
    "responses": Export("application/json", "responses.json", as_items),
    "json": Export("application/json", "json", as_json),
}
