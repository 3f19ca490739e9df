"""The letter to a topic of ntfy, which shows it on a phone: https://docs.ntfy.sh/publish/."""

from __future__ import annotations

from email.header import Header

import httpx2

from app.notifications.channel import ChannelParts, Letter
from app.notifications.kinds import URGENT
from app.storage.notices.notifications import DeliveryRow, TargetRow


async def ntfy_letter(row: DeliveryRow, target: TargetRow, _: float, parts: ChannelParts) -> Letter:
    """Raises StoreFailed."""
    message = await parts.messages.short(row, target)
    headers = {"Title": _header(message["title"]), "Priority": "high" if row.kind in URGENT else "default"}
    if (link := message["link"]).startswith("http"):
        headers["Click"] = _address(link)
    return Letter(headers, (message["body"] or message["title"]).encode())


def _address(link: str) -> str:
    """Return a link as a header may have it: its host in punycode, the rest percent-encoded."""
    url = httpx2.URL(link)
    return str(url.copy_with(host=url.raw_host.decode("ascii")))


def _header(text: str) -> str:
    """Return a text as a header may have it (RFC 2047, which ntfy reads); one line in any case."""
    one = " ".join(text.split())
    return one if one.isascii() else Header(one, "utf-8").encode(maxlinelen=0)
