"""Documents that are text by themselves: tables, web pages, mails. Imported in the box only."""

from __future__ import annotations

from email import message_from_bytes
from email.message import MIMEPart
from email.policy import default

from tools.extraction.output import Sections, in_pieces
from tools.web.page_text import text_of

_URL = "file:///"  # what relative links begin with: they are left out
_S = 60.0  # the reader ends before
_HEADERS = ("From", "To", "Cc", "Date", "Subject")


def table(data: bytes, _: str) -> Sections:
    """Yield the lines of a table as they are, decoded."""
    return in_pieces("part 1", iter(text_of(data, "text/plain", _URL, _S).text.splitlines()), "line")


def page(data: bytes, _: str) -> Sections:
    """Yield the visible text of a web page."""
    found = text_of(data, "text/html", _URL, _S)
    yield "part 1", "\n\n".join(filter(None, (found.title and f"# {found.title}", found.text)))


def mail(data: bytes, _: str) -> Sections:
    """Yield the headers and the text of a mail, and then a list of what is attached."""
    message = message_from_bytes(data, policy=default)
    headers = [f"{name}: {' '.join(str(message[name]).split())}" for name in _HEADERS if message[name]]
    body = message.get_body(("plain", "html"))
    yield "part 1", "\n".join([*headers, "", _text(body) if body else ""])
    attached = [one for one in message.walk() if one.get_filename()]
    lines = [f"- {one.get_filename()}, {one.get_content_type()}, {_size(one)} bytes" for one in attached]
    if lines:
        yield "attachments", "\n".join(lines)


def _text(part: MIMEPart) -> str:
    raw = part.get_payload(decode=True)
    kind = f"{part.get_content_type()}; charset={part.get_content_charset('')}"
    return text_of(raw if isinstance(raw, bytes) else b"", kind, _URL, _S).text


def _size(part: MIMEPart) -> str:
    raw = part.get_payload(decode=True)
    return f"{len(raw) if isinstance(raw, bytes) else 0:,}"
