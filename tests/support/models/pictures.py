"""Small pictures and PDFs, for tests: heads as they are written, with nothing behind them that a decoder would like."""

from __future__ import annotations

import hashlib
import re
import struct
import zlib
from base64 import b64encode

from app.core.attachments import Attachment
from app.models.scripted import Scripted
from tests.support.server.serving import Served

PLACE = re.compile(r"^\[[^\n]*, in the workspace\]\n?", re.MULTILINE)


def png(width: int = 8, height: int = 6, tail: bytes = b"") -> bytes:
    """A whole one, of one colour."""
    rows = zlib.compress((b"\0" + b"\x40\x80\xc0" * width) * height) if width * height < 10_000 else b""
    parts = [(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)), (b"IDAT", rows), (b"IEND", b"")]
    chunks = [
        struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body)) for kind, body in parts
    ]
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks) + tail


def jpeg(width: int = 8, height: int = 6, marker: int = 0xC2) -> bytes:
    comment = b"\xff\xfe" + struct.pack(">H", 2 + 7) + b"\xff\xc0 \xff\xc0 "  # what looks like a frame, and is none
    frame = bytes([0xFF, 0xFF, marker]) + struct.pack(">HBHHB", 17, 8, height, width, 3) + bytes(9)
    return b"\xff\xd8\xff\xe0" + struct.pack(">H", 4) + b"\0\0" + comment + frame + b"\xff\xda" + bytes(8)


def gif(width: int = 8, height: int = 6) -> bytes:
    return b"GIF89a" + struct.pack("<HH", width, height) + bytes(8)


def webp(form: bytes = b"VP8X", width: int = 8, height: int = 6) -> bytes:
    match form:
        case b"VP8X":
            body = bytes(4) + (width - 1).to_bytes(3, "little") + (height - 1).to_bytes(3, "little")
        case b"VP8L":
            body = b"\x2f" + struct.pack("<I", (width - 1) | (height - 1) << 14)
        case _:
            body = b"\x10\0\0\x9d\x01\x2a" + struct.pack("<HH", width, height)
    chunk = form + struct.pack("<I", len(body)) + body
    return b"RIFF" + struct.pack("<I", 4 + len(chunk)) + b"WEBP" + chunk


def pdf(pages: int = 3, junk: bytes = b"") -> bytes:
    kids = b"".join(b"%d 0 obj << /Type /Page /Parent 2 0 R >> endobj\n" % (3 + at) for at in range(pages))
    tree = b"2 0 obj << /Type /Pages /Count %d >> endobj\n" % pages
    return junk + b"%PDF-1.7\n" + tree + kids + b"%%EOF\n"


def encoded(data: bytes) -> str:
    return b64encode(data).decode()


def image_part(data: bytes, **more: str) -> dict[str, object]:
    return {"type": "image", "data": encoded(data), **more}


def text_part(text: str) -> dict[str, object]:
    return {"type": "text", "text": text}


def hashed(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def data_url(data: bytes, kind: str = "image/png") -> str:
    return f"data:{kind};base64,{encoded(data)}"


def seen_by(model: Scripted, at: int = -1) -> list[tuple[str, tuple[Attachment, ...]]]:
    """What the model was told last: words and attachments of each message of a person, but for where these lie."""
    messages = [message for message in model.requests[at].messages if message.role == "user"]
    return [(PLACE.sub("", message.text), message.attachments) for message in messages]


async def files_of(served: Served) -> dict[str, int]:
    sizes = await served.services.store.sizes()
    return {name: sizes[name] for name in ("files", "session_files")}


CAT, LAW = png(80, 60), pdf(2)
