"""Values of secrets: put into the headers of a request, and masked in its answer. Sans-IO."""

from __future__ import annotations

import json
import re
from base64 import b64decode, b64encode, urlsafe_b64encode
from binascii import Error as Base64Error
from collections.abc import Callable, Iterable, Iterator, Sequence
from html import escape
from urllib.parse import quote, unquote_to_bytes

from msgspec import Struct

from tools.sandbox.network.secrets import BoxSecret
from tools.web.egress import HostPattern, pattern_of

Headers = list[tuple[bytes, bytes]]

DEFAULT_PORTS = {"https": 443, "http": 80}
# They say how a message is read, or are what servers like to repeat in pages and logs: no credentials belong there.
_NEVER = frozenset(
    (
        *(b"host", b"content-length", b"transfer-encoding", b"expect", b"connection", b"cookie", b"referer", b"origin"),
        *(b"user-agent", b"accept", b"accept-language", b"content-type", b"forwarded", b"from", b"via"),
    )
)
# By these some servers take another method or path than the request has, or a second path (WebDAV).
_OVERRIDES = frozenset(
    (
        *(b"x-http-method-override", b"x-http-method", b"x-method-override", b"x-original-url", b"x-rewrite-url"),
        *(b"x-original-uri", b"x-forwarded-uri", b"x-forwarded-path", b"x-forwarded-prefix", b"destination"),
    )
)
_DECODINGS = 5


class Origin(Struct, frozen=True):
    """Scheme, host and port of a server."""

    scheme: str
    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.scheme}://{min(self.spellings, key=len)}"

    @property
    def spellings(self) -> frozenset[str]:
        """Names that a request can give it."""
        shown = f"[{self.host}]" if ":" in self.host else self.host
        short = {shown} if self.port == DEFAULT_PORTS[self.scheme] else set[str]()
        return frozenset({f"{shown}:{self.port}", *short})


def belongs_to(hosts: Iterable[str], origin: Origin) -> bool:
    """Return whether the origin is among the hosts of a secret."""
    for written in hosts:
        scheme = "http" if written.strip().lower().startswith("http://") else "https"
        pattern = pattern_of(written)
        if pattern and scheme == origin.scheme:
            exact = HostPattern(pattern.host, pattern.port or DEFAULT_PORTS[scheme])
            if exact.matches(origin.host, origin.port):
                return True
    return False


def with_values(
    secrets: Sequence[BoxSecret], method: bytes, target: bytes, headers: Headers, withhold: Callable[[BoxSecret], None]
) -> Headers:
    """Return the headers of a request with values in place of the placeholders.

    `withhold` is called with each secret that is named in them and is not for this method and path.
    """
    for secret in secrets:
        filled = [(name, value if name.lower() in _NEVER else _filled(value, secret)) for name, value in headers]
        if filled != headers:
            if _is_for(secret, method, target, headers):
                headers = filled
            else:
                withhold(secret)
    return headers


def _filled(header: bytes, secret: BoxSecret) -> bytes:
    """The header's value with the secret in it, also as a user or password of basic authentication (RFC 7617)."""
    mark, value = secret.placeholder.encode(), secret.value.encode()
    if mark in header:
        return header.replace(mark, value)
    scheme, _, written = header.partition(b" ")
    if scheme.lower() == b"basic":
        try:
            plain = b64decode(written.strip(), validate=True)
        except Base64Error:
            return header
        if mark in plain.split(b":", 1):
            return scheme + b" " + b64encode(b":".join(value if one == mark else one for one in plain.split(b":", 1)))
    return header


def _is_for(secret: BoxSecret, method: bytes, target: bytes, headers: Headers) -> bool:
    if not secret.paths:
        return True
    if any(name.lower() in _OVERRIDES for name, _ in headers):
        return False
    spellings = list(_spellings(target.split(b"?", 1)[0]))
    return any(_matches(written, method, spellings) for written in secret.paths)


def _spellings(path: bytes) -> Iterator[str]:
    """The path as it is and as often as it can be decoded; one that names no place below if servers may differ."""
    for _ in range(_DECODINGS):
        text = path.decode("latin-1")
        bare = [segment.partition(";")[0] for segment in text.split("/")]
        yield "" if {".", ".."} & {*bare} or "\\" in text or "//" in text or "\0" in text else text
        decoded = unquote_to_bytes(path)
        if decoded == path:
            return
        path = decoded
    yield ""


def _matches(written: str, method: bytes, spellings: Sequence[str]) -> bool:
    wanted, _, path = written.strip().rpartition(" ")
    if wanted.strip().upper() not in ("", method.decode("latin-1")):
        return False
    pieces = (".*" if piece == "**" else "[^/]*" if piece == "*" else re.escape(piece) for piece in _pieces(path))
    pattern = re.compile("".join(pieces), re.DOTALL)
    return all(pattern.fullmatch(one) for one in spellings)


def _pieces(glob: str) -> list[str]:
    return re.split(r"(\*\*|\*)", glob)


class Mask:
    """Puts placeholders in the place of values in a stream, whatever its pieces; nothing gets longer or shorter."""

    def __init__(self, secrets: Sequence[BoxSecret]) -> None:
        self._masks = {
            form: secret.placeholder.encode().ljust(len(form), b"*")[: len(form)]
            for secret in secrets
            for form in forms_of(secret.value)
        }
        self._forms = sorted(self._masks, key=len, reverse=True)
        self._firsts = frozenset(form[0] for form in self._forms)
        self._any = re.compile(b"|".join(map(re.escape, self._forms)))
        self._held = b""

    def feed(self, piece: bytes) -> bytes:
        """Return what of the stream is settled: all but an end with which a value may begin."""
        text = self._held + piece
        found, settled = self._replaced(text, self._undecided(text))
        self._held = text[settled:]
        return found

    def flush(self) -> bytes:
        """Return the end of the stream."""
        found, self._held = self._replaced(self._held, len(self._held))[0], b""
        return found

    def whole(self, text: bytes) -> bytes:
        """Return a text that is a stream of its own."""
        return self._replaced(text, len(text))[0]

    def is_in(self, name: bytes) -> bool:
        """Return whether a name, in which case does not count, holds a value."""
        return any(form.lower() in name.lower() for form in self._forms)

    def _replaced(self, text: bytes, until: int) -> tuple[bytes, int]:
        """The text up to `until`, with masks, and where it ends: a value that begins before is replaced as a whole."""
        if not any(form in text for form in self._forms):  # nearly always, and many times as fast as the pattern
            return text[:until], until
        pieces, at = [], 0
        for found in self._any.finditer(text):
            if found.start() >= until:
                break
            pieces += [text[at : found.start()], self._masks[found[0]]]
            at = found.end()
        end = max(at, until)
        return b"".join([*pieces, text[at:end]]), end

    def _undecided(self, text: bytes) -> int:
        longest = len(self._forms[0])
        for start in range(max(0, len(text) - longest + 1), len(text)):
            if text[start] in self._firsts and any(form.startswith(text[start:]) for form in self._forms):
                return start
        return len(text)


def forms_of(value: str) -> frozenset[bytes]:
    """A value as servers may repeat it: as it is, escaped, and in base64, wherever it begins in what is encoded."""
    plain, in_json = value.encode(), json.dumps(value)[1:-1]
    for_pages = in_json.translate({ord(one): f"\\u{ord(one):04x}" for one in "<>&"})  # as Go writes it
    texts = (quote(value), quote(value, safe=""), in_json, in_json.replace("/", "\\/"), for_pages, escape(value))
    forms = {plain, *(text.encode() for text in texts)}
    for encode in (b64encode, urlsafe_b64encode):
        for before in range(3):
            coded = encode(bytes(before) + plain).rstrip(b"=")
            # The characters at both ends hold bits of the neighbours, too.
            inner = coded[-(-before * 8 // 6) : len(plain + bytes(before)) * 8 // 6]
            if len(inner) >= len(plain):
                forms.add(inner)
    return frozenset(forms)
