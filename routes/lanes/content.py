"""Content parts of messages, in the forms of all lanes, as text and files. Nothing is fetched: data URLs only."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from msgspec import Struct, field

from app.core.attachments import Attachment, File
from app.core.messages import AskedCall, Message
from app.storage.files.kinds import file_of
from app.workspace.received import received_file
from routes.lanes.reading import Node, plain_text
from routes.protocol.errors import Refused
from routes.protocol.message_parts import ReadFile, decoded, sent_file

SEND_DATA_URL = 'send its bytes as a data URL, "data:<media type>;base64,<base64>"'
NO_AUDIO = "is audio, which this server does not take; send its text"
# Parts whose text is that of a document. PDFs are found by their bytes, wherever they come in.
DOCUMENTS = frozenset({"document", "search_result", "file", "input_file", "binary"})
LONGEST_FILE_NAME = 255  # characters
BETWEEN = "\n\n"  # texts of one answer
TEXTS = ("text/", "application/json")


class Content(Struct):
    """A message's content: its text parts, an end of line between them, and its pictures and PDFs.

    `untrusted`: it holds the text of a document, which its sender seldom has written.
    """

    texts: list[str] = field(default_factory=list)
    files: list[File] = field(default_factory=list)
    untrusted: bool = False

    @property
    def text(self) -> str:
        return "\n".join(self.texts)

    @property
    def attachments(self) -> tuple[Attachment, ...]:
        return tuple(file.attachment for file in self.files)


class Draft(Struct):
    """An answer of the assistant whose parts are read one after the other."""

    texts: list[str] = field(default_factory=list)
    thoughts: list[str] = field(default_factory=list)
    calls: list[AskedCall] = field(default_factory=list)

    def message(self) -> Message | None:
        """None if there is nothing in it. Between two texts, and two thoughts, is an empty line."""
        if not (self.texts or self.thoughts or self.calls):
            return None
        text, reasoning = BETWEEN.join(self.texts), BETWEEN.join(self.thoughts)
        return Message("assistant", text, calls=tuple(self.calls), reasoning=reasoning)


PartReader = Callable[[Node], str | File | Content]


def content_of(node: Node, name: str, parts: Mapping[str, PartReader] | None = None) -> Content:
    """The content of a field that holds a string, a list of parts, or nothing. `parts` stands in for PARTS.

    Raises Refused, also for a type of part that has no reader.
    """
    value = node.fields.get(name)
    if value is None:
        return Content()
    if isinstance(value, (str, bytes)):
        return Content([plain_text(value)])
    if not isinstance(value, list):
        raise node.refused(name, "is neither a string nor a list of parts; send one of them")
    found = Content()
    for at, item in enumerate(value):
        if isinstance(item, str):
            found.texts.append(plain_text(item))
            continue
        if not isinstance(item, dict):
            raise node.refused(f"{name}.{at}", "is no part; send a string, or an object with a type")
        add_part(found, Node(item, node.at(f"{name}.{at}")), PARTS if parts is None else parts)
    return found


def add_part(content: Content, part: Node, parts: Mapping[str, PartReader]) -> None:
    """Raises Refused for a type without a reader."""
    kind = part.required_text("type")
    if kind not in parts:
        raise part.refused("type", f"is {kind[:80]!a}, which is no part of a message here; send {', '.join(parts)}")
    match parts[kind](part):
        case str(text):
            content.texts.append(text)
            content.untrusted |= kind in DOCUMENTS
        case File() as file:
            content.files.append(file)
        case Content() as inner:
            content.texts += inner.texts
            content.files += inner.files
            content.untrusted |= kind in DOCUMENTS


def text_part(part: Node) -> str:
    """`text` (all lanes), `input_text` and `output_text` (Responses)."""
    return part.text("text") or ""


def refusal_part(part: Node) -> str:
    return part.text("refusal") or ""


def image_url_part(part: Node) -> File:
    """`image_url` of chat: `{"image_url": {"url": ...}}`, or the URL alone."""
    if isinstance(part.fields.get("image_url"), (str, bytes)):
        return sent_file_of(part, "image_url")
    return sent_file_of(part.required_child("image_url"), "url")


def file_part(part: Node) -> str | File:
    """`file` of chat: `{"file": {"file_data": ..., "filename": ...}}`."""
    return _named_file(part.required_child("file"))


def input_image_part(part: Node) -> File:
    if part.fields.get("file_id") is not None:
        raise part.refused("file_id", f"is not known: this server keeps no files; {SEND_DATA_URL}")
    return sent_file_of(part, "image_url")


def _named_file(node: Node) -> str | File:
    for name in ("file_id", "file_url"):
        if node.fields.get(name) is not None:
            raise node.refused(name, f"is not fetched: this server keeps no files and opens no URLs; {SEND_DATA_URL}")
    return text_or_file(node, "file_data", node.text("filename") or "")


def text_or_file(
    node: Node, name: str, file_name: str = "", media_type: str = "", read: ReadFile = received_file
) -> str | File:
    """The text of a field that holds the base64 of one, or else its file, of any type."""
    value = node.fields.get(name)
    data = _ascii(value) if isinstance(value, (str, bytes)) else b""
    declared = data[5:80].decode("ascii") if data[:5].lower() == b"data:" else media_type
    if not declared.lower().startswith(TEXTS):
        return sent_file_of(node, name, file_name, read)
    with _refusing(node.at(name)):
        return plain_text(decoded(node.at(name), data, SEND_DATA_URL))


def source_part(part: Node) -> str | File | Content:
    """`image` and `document` of Messages, whose bytes, text or parts are in `source`."""
    source = part.required_child("source")
    match source.required_text("type"):
        case "base64":
            return sent_file_of(source, "data", part.text("title") or "")
        case "text":
            return source.text("data") or ""
        case "content":
            return content_of(source, "content", {kind: PARTS[kind] for kind in ("text", "image")})
    raise source.refused("type", "is neither base64 nor text: nothing is fetched for a message; send its bytes")


def audio_part(part: Node) -> File:
    raise part.refused("type", NO_AUDIO)


PARTS: Mapping[str, PartReader] = {
    "text": text_part,
    "image_url": image_url_part,
    "file": file_part,
    "refusal": refusal_part,
    "input_audio": audio_part,
    "input_text": text_part,
    "output_text": text_part,
    "input_image": input_image_part,
    "input_file": _named_file,
    "image": source_part,
    "document": source_part,
}


def sent_file_of(node: Node, name: str, file_name: str = "", read: ReadFile = file_of) -> File:
    """The picture or PDF of a field that holds base64, alone or in a data URL, as text or bytes.

    `read` may know more types.
    """
    value = node.fields.get(name)
    if not isinstance(value, (str, bytes)) or not value:
        raise node.refused(name, f"is missing; {SEND_DATA_URL}")
    with _refusing(node.at(name)):
        return sent_file(node.at(name), _ascii(value), file_name[:LONGEST_FILE_NAME], SEND_DATA_URL, read)


@contextmanager
def _refusing(at: str) -> Iterator[None]:
    """Refuse with 400 and `param`, as these lanes do."""
    try:
        yield
    except Refused as refused:
        raise Refused(400, refused.code, refused.message, param=at) from None


def _ascii(value: str | bytes) -> bytes:
    return value if isinstance(value, bytes) else value.encode("ascii", "replace")
