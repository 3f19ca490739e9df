"""Encode the head of a request, and reject characters that would allow header injection."""

from __future__ import annotations

import httpx2

from tools.base.patterns import lazy_pattern

_TOKEN = lazy_pattern(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_TARGET = lazy_pattern(rb"[\x21-\x7e]+")
_VALUE = lazy_pattern(rb"(?:[\x21-\x7e\x80-\xff](?:[\t\x20-\x7e\x80-\xff]*[\x21-\x7e\x80-\xff])?)?")


def head_of(request: httpx2.Request) -> bytes:
    """Return the head as bytes. Raises LocalProtocolError, without the value: it may be a key."""
    method, target = request.method.encode(), request.url.raw_path
    if not _TOKEN.fullmatch(method) or not _TARGET.fullmatch(target):
        raise httpx2.LocalProtocolError("Illegal method or target")
    lines = [b"%b %b HTTP/1.1\r\n" % (method, target)]
    for name, value in request.headers.raw:
        if not _TOKEN.fullmatch(name):
            raise httpx2.LocalProtocolError("Illegal header name")
        if not _VALUE.fullmatch(value):
            raise httpx2.LocalProtocolError(f"Illegal value of the header {name.decode()}")
        lines.append(b"%b: %b\r\n" % (name, value))
    lines.append(b"\r\n")
    return b"".join(lines)
