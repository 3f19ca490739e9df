"""Sessions as files: a row of EXPORTS each. Secrets are redacted, also those that have become one since."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator, Mapping
from html import escape
from importlib import import_module
from typing import Any

from msgspec import Struct

from app.core.attachments import SEEN
from app.core.messages import Message, rejoined
from app.redaction.redactor import Redactor
from app.storage.sessions import SessionRow
from app.storage.store import Store
from parsing.dialects import FENCED
from routes.texts import text
from routes.transcripts.formats import Item, items_of
from tools.base.patterns import lazy_pattern

TICKS = lazy_pattern("`{3,}")
PAGE = """<!doctype html>
<html><head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{title}</title>
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; img-src data:; style-src 'unsafe-inline'">
<meta name="referrer" content="no-referrer"><style>
:root {{ color-scheme: light dark; font: 16px/1.55 system-ui, sans-serif; }}
body {{ max-width: 46rem; margin: 2rem auto; padding: 0 1rem; overflow-wrap: anywhere; }}
pre {{ max-height: 24rem; overflow: auto; padding: 0.7rem; border: 1px solid #8885; white-space: pre-wrap; }}
th, td {{ border: 1px solid #8885; padding: 0.2rem 0.5rem; }} img {{ max-width: 100%; }}
</style></head><body>
{body}</body></html>
"""


class Exported(Struct):
    """A session: its `fields` as JSON, and the bytes of its files as base64 by their SHA-256.

    `words` is the environment that says in which language headings are.
    """

    fields: dict[str, Any]
    files: dict[str, str]
    words: Mapping[str, str]


class Export(Struct, frozen=True):
    media_type: str
    ending: str
    write: Callable[[Exported], str]


async def exported(
    store: Store, row: SessionRow, redactor: Redactor, show: Callable[[Message], Item], words: Mapping[str, str]
) -> Exported:
    """Read a session; `show` makes of a message what its reader may see. Raises StoreFailed."""
    messages, documents, files = await store.messages(row.id), [], {}
    for one in await store.documents(row.id):
        version = await store.document_version(one.id, one.version)
        documents.append({"title": one.title, "kind": one.kind, "text": version.text if version else ""})
    for sha256 in {attachment.sha256 for message in messages for attachment in message.attachments}:
        if data := await store.file(sha256, row.id):
            files[sha256] = base64.b64encode(data).decode()
    fields = {"id": row.id, "title": row.title, "created": row.created, "documents": documents}
    return Exported(redactor.redact_value(fields | {"messages": list(map(show, rejoined(messages)))}), files, words)


def as_json(one: Exported) -> str:
    return json.dumps(one.fields | {"files": one.files}, indent=1)


def as_items(one: Exported) -> str:
    """The body of a request to /v1/responses that goes on with the conversation, but for its model."""
    items = [item for message in one.fields["messages"] for item in items_of(message, one.files)]
    about = {"session": one.fields["id"], "title": one.fields["title"]}
    return json.dumps({"input": items, "metadata": about}, indent=1)


def as_markdown(one: Exported) -> str:
    parts = (part if isinstance(part, str) else f"({part.get('name') or part['media_type']})" for part in _parts(one))
    return "\n\n".join(filter(None, parts)) + "\n"


def as_html(one: Exported) -> str:
    """One file, which runs nothing and reads nothing from elsewhere."""
    markdown = import_module("markdown_it").MarkdownIt("commonmark", {"html": False}).enable("table").disable("image")
    body = (markdown.render(part) if isinstance(part, str) else _picture(part, one.files) for part in _parts(one))
    return PAGE.format(title=escape(one.fields["title"]), body="".join(body))


def _picture(part: Item, files: Mapping[str, str]) -> str:
    name, kind = escape(part.get("name") or part["media_type"]), part["media_type"]
    if kind not in SEEN or part["sha256"] not in files:
        return f"<p>({name})</p>\n"
    return f'<p><img alt="{name}" src="data:{kind};base64,{files[part["sha256"]]}"></p>\n'


def _parts(one: Exported) -> Iterator[str | Item]:
    """Pieces of Markdown, and attachments."""
    yield f"# {one.fields['title']}"
    for message in one.fields["messages"]:
        role, words = message["role"], message.get("shown") or message["text"]
        if role == "tool":
            name = text("terminal.export.result", one.words, name=message.get("name") or "tool")
            yield f"**{name}**\n\n{_fenced(words)}"
        else:
            yield f"## {text('terminal.export.assistant' if role == 'assistant' else 'terminal.export.you', one.words)}"
            yield words
        for call in message.get("calls", ()):
            if call["dialect"] != FENCED.name or f"```{call['name']}\n" not in words:  # else it stands in the text
                arguments = json.dumps(call["arguments"], indent=2, ensure_ascii=False)
                yield f"**{call['name']}**\n\n{_fenced(arguments, 'json')}"
        yield from message.get("attachments", ())
    for document in one.fields["documents"]:
        yield f"# {text('terminal.export.document', one.words, title=document['title'])}"
        yield document["text"]


def _fenced(words: str, language: str = "") -> str:
    """A block of code, whose fence is longer than any inside."""
    fence = "`" * (1 + max(2, *map(len, TICKS.findall(words)), 2))
    return f"{fence}{language}\n{words}\n{fence}"


EXPORTS: Mapping[str, Export] = {
    "markdown": Export("text/markdown", "md", as_markdown),
    "html": Export("text/html", "html", as_html),
    "responses": Export("application/json", "responses.json", as_items),
    "json": Export("application/json", "json", as_json),
}
