"""Content of a prompt as a message: its text with what it names; pictures, and texts that are long, as files of it."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import unquote, urlsplit

from acp import schema
from pydantic import BaseModel

from routes.acp.updates import Json, block
from routes.terminal.event_client import Message
from routes.texts.exact import fenced

LONG = 128 * 1024  # characters: from here on a text is a file, which tools read in parts
BEGINNING = 500


def message_of(blocks: Sequence[BaseModel], cwd: Path) -> Message:
    named, behind, files = list[str](), list[str](), list[Json]()
    for one in blocks:
        match one:
            case schema.TextContentBlock():
                named.append(one.text)
            case schema.ImageContentBlock():
                files.append({"type": "image", "data": one.data})
            case schema.AudioContentBlock():
                files.append(_file(one.data, f"audio.{one.mime_type.rpartition('/')[2]}"))
            case schema.ResourceContentBlock():
                named.append(_named(one.uri, cwd))
            case schema.EmbeddedResourceContentBlock(resource=found):
                named.append(_named(found.uri, cwd))
                if isinstance(found, schema.BlobResourceContents):
                    files.append(_file(found.blob, named[-1]))
                elif len(found.text) > LONG:
                    files.append(_file(_encoded(found.text), named[-1]))
                else:
                    behind.append(f"\n\n{named[-1]}:\n{fenced(found.text)}")
    message = "".join([*named, *behind])
    if len(message) > LONG:
        files.append(_file(_encoded(message), "message.txt"))
        message = f"{message[:BEGINNING]} ...\n\n[The whole message is in the attached file message.txt.]"
    return [block(message), *files] if files else message


def _named(uri: str, cwd: Path) -> str:
    """A resource as the text mentions it: a file by its path, below the folder of the session if it is there."""
    parts = urlsplit(uri)
    if parts.scheme != "file":
        return f"<{uri}>"
    path = Path(unquote(parts.path))
    place = path.relative_to(cwd) if path.is_relative_to(cwd) else path
    return f"@{place}{f'#{parts.fragment}' if parts.fragment else ''}"


def _file(data: str, name: str) -> Json:
    return {"type": "file", "data": data, "name": name.strip("@<>").rpartition("/")[2][:200] or "file"}


def _encoded(words: str) -> str:
    return base64.b64encode(words.encode("utf-8", "replace")).decode()
