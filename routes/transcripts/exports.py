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
from routes.texts.exact import fenced
from routes.transcripts.formats import Item, items_of

PAGE = """<!doctype html>
<html><head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{title}</title>
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; img-src data:; style-src 'unsafe-inline'">
<meta name="referrer" content="no-referrer"><style>
:root {{ color-scheme: light dark; font: 16px/1.55 system-ui, sans-serif; }}
body {{ max-width: 46rem; margin: 2rem auto; padding: 0 1rem; overflow-wrap: anywhere; }}
pre {{ max-height: 24rem; overflow: auto; padding: 0.7rem; border: 1px solid #8885; white-space: pre-wrap; }}
h2 {{ font-size: 1rem; opacity: 0.65; }} th, td {{ border: 1px solid #8885; padding: 0.2rem 0.5rem; }}
img {{ max-width: 100%; }}
</style></head><body>
{body}</body></html>
"""
Words = Mapping[str, str]  # the environment that says in which language headings are


class Export(Struct, frozen=True):
    media_type: str
    ending: str
    write: Callable[[Item, Words], str]


async def exported(
    store: Store, row: SessionRow, redactor: Redactor, show: Callable[[Message], Item]
) -> dict[str, Any]:
    """A session as JSON, its files as base64; `show` makes of a message what its reader may see. Raises StoreFailed."""
    messages, documents, files = await store.messages(row.id), [], {}
    for one in await store.documents(row.id):
        version = await store.document_version(one.id, one.version)
        documents.append({"title": one.title, "kind": one.kind, "text": version.text if version else ""})
    for sha256 in {attachment.sha256 for message in messages for attachment in message.attachments}:
        files[sha256] = base64.b64encode(await store.file(sha256, row.id) or b"").decode()
    labels = " ".join(one.label for one in await store.session_labels([row.id]))
    fields = {"id": row.id, "title": row.title, "created": row.created, "documents": documents, "labels": labels}
    return redactor.redact_value(fields | {"messages": list(map(show, rejoined(messages)))}) | {"files": files}


def as_json(session: Item, _: Words) -> str:
    return json.dumps(session, indent=1)


def as_items(session: Item, _: Words) -> str:
    """The body of a request to /v1/responses that goes on with the conversation, but for its model."""
    items = [item for message in session["messages"] for item in items_of(message, session["files"])]
    about = {"session": session["id"], "title": session["title"], "labels": session["labels"]}
    return json.dumps({"input": items, "metadata": about}, indent=1)


def as_markdown(session: Item, words: Words) -> str:
    parts = (
        one if isinstance(one, str) else f"({one.get('name') or one['media_type']})" for one in _parts(session, words)
    )
    return "\n\n".join(filter(None, parts)) + "\n"


def as_html(session: Item, words: Words) -> str:
    """One file, which runs nothing and reads nothing from elsewhere."""
    render = (
        import_module("markdown_it").MarkdownIt("commonmark", {"html": False}).enable("table").disable("image").render
    )
    body = [render(one) if isinstance(one, str) else _picture(one, session["files"]) for one in _parts(session, words)]
    return PAGE.format(title=escape(session["title"]), body="".join(body))


def _picture(one: Item, files: Item) -> str:
    name, kind, data = escape(one.get("name") or one["media_type"]), one["media_type"], files[one["sha256"]]
    is_shown = kind in SEEN and data
    return f'<p><img alt="{name}" src="data:{kind};base64,{data}"></p>\n' if is_shown else f"<p>({name})</p>\n"


def _parts(session: Item, words: Words) -> Iterator[str | Item]:
    """Pieces of Markdown, and attachments."""
    yield f"# {session['title']}"
    for message in session["messages"]:
        role, content = message["role"], message.get("shown") or message["text"]
        if role == "tool":
            result = text("terminal.export.result", words, name=message.get("name") or "tool")
            yield f"**{result}**\n\n{fenced(content)}"
        else:
            who = "assistant" if role == "assistant" else "app" if message.get("app") else "you"
            yield f"## {text(f'terminal.export.{who}', words, server=message.get('app', ''))}"
            yield content
        for call in message.get("calls", ()):
            if call["dialect"] != FENCED.name or f"```{call['name']}\n" not in content:  # else it stands in the text
                arguments = json.dumps(call["arguments"], indent=2, ensure_ascii=False)
                yield f"**{call['name']}**\n\n{fenced(arguments, 'json')}"
        yield from message.get("attachments", ())
    for document in session["documents"]:
        yield f"# {text('terminal.export.document', words, title=document['title'])}"
        yield document["text"]


EXPORTS: Mapping[str, Export] = {
    "markdown": Export("text/markdown", "md", as_markdown),
    "html": Export("text/html", "html", as_html),
    "responses": Export("application/json", "responses.json", as_items),
    "json": Export("application/json", "json", as_json),
}
