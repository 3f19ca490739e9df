"""Texts of the documents of a message, for models that cannot read their bytes: the beginning, beside the file."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from msgspec.structs import replace

from app.core.attachments import PICTURES_ONLY, File
from app.core.data_delimiters import as_data
from app.core.messages import Message
from app.core.provider import ProviderFailed
from tools.extraction.documents import UnreadableDocument, extracted
from tools.extraction.formats import HEAD, Format, format_of
from tools.sandbox.sandbox import NoSandbox, Sandbox

MOST = 50_000  # characters of all documents of a message; a quarter of a smaller window
MOST_PLAIN = 8_000  # of one that tools read as it is, such as a table
WAIT_S = 20.0  # that a message waits for the texts of all its documents
SLOW = "reading its text takes long, which read_file does"


async def with_texts(
    files: Sequence[File], sandbox: Sandbox | NoSandbox, window: Callable[[], Awaitable[int]]
) -> Sequence[File]:
    """Return the files, each document with its text, as far as it fits a model with this window of tokens."""
    found = [format_of(file.data[:HEAD], file.data[-HEAD:], file.attachment.name) for file in files]
    if not any(found):
        return files
    try:
        most = min(MOST, await window())  # a token has about four characters
    except ProviderFailed:  # no model may have its labels, as the run will say
        most = MOST
    most //= sum(map(bool, found))
    until = asyncio.get_running_loop().time() + WAIT_S
    return await asyncio.gather(
        *(_with_text(file, sandbox, one, most, until=until) for file, one in zip(files, found, strict=True))
    )


def with_attachments(messages: Sequence[Message], files: Sequence[File]) -> list[Message]:
    """Return the messages with the attachments of these files, as they have been read."""
    known = {file.attachment.sha256: file.attachment for file in files if file.attachment.text}
    return [
        replace(one, attachments=tuple(known.get(file.sha256, file) for file in one.attachments))
        if one.attachments
        else one
        for one in messages
    ]


async def _with_text(
    file: File, sandbox: Sandbox | NoSandbox, found: Format | None, most: int, *, until: float
) -> File:
    if found is None:
        return file
    attachment = file.attachment
    try:
        async with asyncio.timeout_at(until):
            document = await extracted(file.data, attachment.name, sandbox)
    except (UnreadableDocument, TimeoutError) as error:
        return file if found.is_plain else replace(file, attachment=replace(attachment, about=str(error) or SLOW))
    if not document.has_text:
        return replace(file, attachment=replace(attachment, about=PICTURES_ONLY))
    most = min(most, MOST_PLAIN) if found.is_plain else most
    shown, count = await asyncio.to_thread(document.fitting, most), document.line_count
    title = f"Text of {attachment.path or attachment.file_name}: {document.kind}, {document.count}"
    if len(shown) < count:
        title += f"; lines 1 to {len(shown):,} of {count:,}"
        if attachment.path:  # of a text, read_file counts the lines of the file
            title += f"; read_file {'has all' if found.is_plain else f'from offset {len(shown) + 1} has the others'}"
    if document.left_out:
        title += f"; left out: {document.left_out}"
    return replace(file, attachment=replace(attachment, text=as_data(title, "\n".join(line for line, _, _ in shown))))
