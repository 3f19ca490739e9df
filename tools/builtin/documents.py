"""The tools that write, change and read documents: they stand beside the chat, and the person edits them, too."""

from __future__ import annotations

from parsing import Arguments
from tools.base.access import MARKDOWN
from tools.base.diffs import unified_diff
from tools.base.outcome import ToolFailed, required
from tools.tool import Context

CREATE_DOCUMENT, CONTENT = "create_document", "content"  # the argument that is streamed as a document
_NOTE = 200  # room for the lines that say where a page lies in the whole
_NONE = "No documents are kept here. Write the text in your answer."


async def create_document(arguments: Arguments, context: Context) -> str:
    """Store a new document; its text has been streamed as the model wrote it."""
    documents = required(context.documents, _NONE)
    made = await documents.create(arguments["title"], arguments.get("kind", MARKDOWN), arguments[CONTENT])
    return f'Created "{made.title}" ({made.id}), version 1. The person sees it beside the chat: do not repeat it.'


async def update_document(arguments: Arguments, context: Context) -> str:
    """Replace a text that occurs once; the answer is a diff."""
    documents = required(context.documents, _NONE)
    before, after = await documents.replace(arguments["document"], arguments["old"], arguments["new"])
    diff = unified_diff(after.title, before.text, after.text)
    return f'Updated "{after.title}" to version {after.version}.\n{diff}'


async def suggest_edits(arguments: Arguments, context: Context) -> str:
    """Suggest a replacement, which the person accepts or rejects."""
    old, new, reason = arguments["old"], arguments["new"], arguments.get("reason", "")
    documents = required(context.documents, _NONE)
    document, number = await documents.suggest(arguments["document"], old, new, reason)
    return f'Suggestion {number} for "{document.title}" waits for the person, whose decision you will see.'


async def read_document(arguments: Arguments, context: Context) -> str:
    """Return one page of a document, or the list of all."""
    documents = required(context.documents, _NONE)
    if "document" not in arguments:
        return "\n".join(await documents.titles()) or "There are no documents in this conversation."
    offset = int(arguments.get("offset", 0))
    found = await documents.read(arguments["document"])
    if offset and offset >= len(found.text):
        raise ToolFailed(f'"{found.title}" has {len(found.text):,} characters', ": give an offset below that.")
    page = found.text[offset : offset + max(context.result_characters - _NOTE - len(found.title), 1)]
    end = offset + len(page)
    following = f"Next: offset={end}" if end < len(found.text) else "This is the end"
    about = f'"{found.title}" ({found.id}), {found.kind}, version {found.version}'
    return f"{page}\n[{about}. Characters {offset:,} to {end:,} of {len(found.text):,}. {following}.]"
