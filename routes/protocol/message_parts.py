"""Parts of a message (texts, pictures, PDFs, other files), in our form and in OpenAI's."""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, Any, Literal

from msgspec import Struct
from pydantic import AfterValidator, ConfigDict, Discriminator, Field, PrivateAttr, Tag, TypeAdapter

from app.config.model_settings import ModelSettings
from app.core.attachments import File
from app.core.strict_model import StrictModel, storable
from app.storage.files.kinds import UnknownKind, file_of
from app.workspace.received import received_file
from routes.protocol.errors import Refused

MOST_PARTS = 4096
ROOM_FOR_NAME = 2048  # bytes of a body beside the data of a part
SEND_BYTES = 'send its bytes, as {"type": "image", "data": "<base64>"}'
# Where bytes stand in a part, whatever its form.
BYTES_AT = (("data",), ("image_url", "url"), ("file", "file_data"))
# Stored Idempotency-Keys hold fingerprints of the fields in this order, so it never changes. Others follow as declared.
FINGERPRINT_ORDER = (
    *("message", "session", "model", "tools", "max_rounds", "max_calls", "max_tokens", "time_limit_s", "inactivity_s"),
    *("when_busy", "on_disconnect"),
)
FIELDS = TypeAdapter(dict[str, Any], config=ConfigDict(defer_build=True))
FORMS = frozenset({"a text", "parts", "text part", "data part", "image_url part", "file part"})

ReadFile = Callable[[bytes, str], File]

Storable = Annotated[str, AfterValidator(storable)]
Name = Annotated[str, Field(max_length=255), AfterValidator(storable)]


class Part(StrictModel):
    model_config = ConfigDict(hide_input_in_errors=True)


class TextPart(Part):
    type: Literal["text"]
    text: Storable


class DataPart(Part):
    """A picture, or as `file` any file: its bytes say of which type."""

    type: Literal["image", "file"]
    data: bytes
    name: Name = ""


class ImageUrl(Part):
    url: bytes
    detail: str | None = None  # is not used: the model's server decides


class ImageUrlPart(Part):
    type: Literal["image_url"]
    image_url: ImageUrl


class FileData(Part):
    file_data: bytes
    filename: Name = ""


class FilePart(Part):
    type: Literal["file"]
    file: FileData


def part_form(part: Any) -> str | None:
    """The form of a part, so that a validation error is about that form alone."""
    match part:
        case TextPart() | {"type": "text"}:
            return "text part"
        case ImageUrlPart() | {"type": "image_url"}:
            return "image_url part"
        case FilePart() | {"type": "file", "file": _}:
            return "file part"
        case DataPart() | {"type": "image" | "file"}:
            return "data part"
    return None


def content_form(content: Any) -> str | None:
    match content:
        case str():
            return "a text"
        case list():
            return "parts"
    return None


AnyPart = Annotated[
    Annotated[TextPart, Tag("text part")]
    | Annotated[DataPart, Tag("data part")]
    | Annotated[ImageUrlPart, Tag("image_url part")]
    | Annotated[FilePart, Tag("file part")],
    Discriminator(
        part_form,
        custom_error_type="part",
        custom_error_message="is not a message part; send an object whose type is text, image, file or image_url",
    ),
]
Content = Annotated[
    Annotated[Storable, Tag("a text")] | Annotated[list[AnyPart], Field(max_length=MOST_PARTS), Tag("parts")],
    Discriminator(content_form, custom_error_type="content", custom_error_message="send a string or a list of parts"),
]


class FileLimits(Struct, frozen=True):
    """Limits on the number of files in one message, and on their bytes in all."""

    count: int = 0
    bytes: int = 0

    @property
    def room(self) -> int:
        """Bytes that a body may need for them, as base64 with line ends."""
        return self.count and self.count * ROOM_FOR_NAME + self.bytes * 3 // 2


NO_FILES = FileLimits()


def file_limits(settings: ModelSettings) -> FileLimits:
    return FileLimits(settings.max_attachments, settings.max_attachment_bytes)


class MessageRequest(StrictModel):
    """The body of POST /runs/{id}/messages. `message` is a string or content parts; `text` is what they say.

    `files` are those among them, once they have been read.
    """

    message: Content
    _files: tuple[File, ...] = PrivateAttr(default=())

    @property
    def text(self) -> str:
        return text_of(self.message)

    @property
    def files(self) -> tuple[File, ...]:
        return self._files

    @property
    def is_empty(self) -> bool:
        return not self.files and not self.text.strip()

    async def read_files(self, limits: FileLimits) -> None:
        """Raises Refused. Beside the loop: they may be large."""
        if not isinstance(self.message, str):
            self._files = await asyncio.to_thread(files_of, self.message, limits)

    def fingerprint(self) -> str:
        """The same for the same request only."""
        if not self.files:
            return hashlib.sha256(self._given_fields().encode()).hexdigest()
        names = [[file.attachment.sha256, file.attachment.name] for file in self.files]
        hashed = [self._given_fields(exclude={"message"}), self.text, names]
        return hashlib.sha256(json.dumps(hashed).encode()).hexdigest()

    def _given_fields(self, exclude: set[str] | None = None) -> str:
        fields = self.model_dump(mode="json", exclude_defaults=True, exclude=exclude)
        ordered = {name: fields[name] for name in (*FINGERPRINT_ORDER, *fields) if name in fields}
        return FIELDS.dump_json(ordered).decode()


def set_bytes_apart(fields: dict[str, Any]) -> None:
    """Take the bytes of parts out of the JSON: megabytes of base64 need no search for secrets."""
    content = fields.get("message")
    for part in content if isinstance(content, list) else ():
        for *outer, last in BYTES_AT:
            holder = part
            for name in outer:
                holder = holder.get(name) if isinstance(holder, dict) else None
            if isinstance(holder, dict) and isinstance(holder.get(last), str):
                holder[last] = holder[last].encode("ascii", "replace")


def text_of(content: str | Sequence[Part]) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(part.text for part in content if isinstance(part, TextPart))


def files_of(content: str | Sequence[Part], limits: FileLimits) -> tuple[File, ...]:
    """The files of a message. Raises Refused with 413 or 422, naming the part."""
    sent = list(_sent(content))
    if len(sent) > limits.count:
        advice = "Send fewer, or raise DRAGOMAN_MAX_ATTACHMENTS."
        message = f"message has {len(sent)} files; {limits.count} are allowed. {advice}"
        raise Refused(422, "too_many_files", message)
    files, left = list[File](), limits.bytes
    for place, data, name, is_picture in sent:
        read = file_of if is_picture else received_file
        files.append(sent_file(place, data, name, read=read))
        left -= files[-1].attachment.size
        if left < 0:
            advice = "Send smaller or fewer ones, or raise DRAGOMAN_MAX_ATTACHMENT_BYTES."
            message = f"{place}: the files of message have more than {limits.bytes:,} bytes. {advice}"
            raise Refused(413, "too_long", message)
    return tuple(files)


def _sent(content: str | Sequence[Part]) -> Iterator[tuple[str, bytes, str, bool]]:
    """Place, encoded bytes and name of each, and whether it has to be a picture or a PDF."""
    for at, part in enumerate([] if isinstance(content, str) else content):
        match part:
            case DataPart(data=data, name=name, type=kind):
                yield f"message.{at}.data", data, name, kind == "image"
            case ImageUrlPart(image_url=image):
                yield f"message.{at}.image_url.url", image.url, "", True
            case FilePart(file=file):
                yield f"message.{at}.file.file_data", file.file_data, file.filename, False


def sent_file(place: str, data: bytes, name: str, advice: str = SEND_BYTES, read: ReadFile = file_of) -> File:
    """The file of base64, alone or in a data URL. Raises Refused with 422, naming the place, with advice.

    `read` may know more types than those that models are sent.
    """
    name = "".join(one if one.isprintable() else "_" for one in name)
    try:
        return read(decoded(place, data, advice), name)
    except UnknownKind as unknown:
        raise Refused(422, "unsupported_file", f"{place}: {unknown}") from None


def decoded(place: str, data: bytes, advice: str = SEND_BYTES) -> bytes:
    """The bytes of base64, alone or in a data URL. Raises Refused."""
    if data[:5].lower() == b"data:":
        head, _, data = data.partition(b",")
        if not head.lower().endswith(b";base64"):
            raise Refused(422, "invalid_request", f"{place} is a data URL without ;base64; {advice}")
    elif b"://" in data[:16]:
        raise Refused(422, "invalid_request", f"{place} is a URL, and nothing is fetched for a message; {advice}")
    try:
        return base64.b64decode(data.translate(None, b" \t\r\n"), validate=True)
    except binascii.Error:
        raise Refused(422, "invalid_request", f"{place} is not base64; {advice}") from None
