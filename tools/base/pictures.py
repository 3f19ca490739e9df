"""Pictures in results of tools: recognised by their first bytes, bounded in number and size."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice

MOST_BYTES = 5 << 20  # of one picture: more is refused by the large services
MOST_PICTURES = 8  # of one result


def is_picture(data: bytes) -> bool:
    """Return whether it begins as a PNG, JPEG, GIF or WebP does."""
    known = (b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"GIF87a", b"GIF89a")
    return data.startswith(known) or (data.startswith(b"RIFF") and data[8:12] == b"WEBP")


def shown_pictures(found: Iterable[bytes]) -> tuple[bytes, ...]:
    """Return the first pictures that are not too large."""
    fitting: Iterator[bytes] = (data for data in found if len(data) <= MOST_BYTES and is_picture(data))
    return tuple(islice(fitting, MOST_PICTURES))
