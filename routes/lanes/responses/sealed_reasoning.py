"""Reasoning as opaque text, for clients that keep no response here and send all items back with their next request.

It is not encrypted: the same reasoning stands in the item's summary. What counts is that clients send this text back
unchanged and whole, while they may shorten or drop a summary.
"""

from __future__ import annotations

import base64
import binascii

PREFIX = "dragoman1."


def sealed(reasoning: str) -> str:
    return PREFIX + base64.b64encode(reasoning.encode("utf-8", "surrogatepass")).decode()


def unsealed(text: str) -> str | None:
    """The reasoning, or None if the text is another server's."""
    if not text.startswith(PREFIX):
        return None
    try:
        return base64.b64decode(text.removeprefix(PREFIX), validate=True).decode("utf-8", "replace")
    except binascii.Error:
        return None
