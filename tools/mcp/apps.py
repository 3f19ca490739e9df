"""MCP Apps (SEP-1865): what tools and their pages declare, and what of it an admin has allowed.

A tool names a page of its server, `ui://...`, which is shown with its results. Whatever a page asks for, it gets only
what the entry of its server in `mcp.json` allows.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from tools.base.patterns import lazy_pattern
from tools.base.permit import canonical
from tools.mcp.definitions import PAGES, Definition, sha256
from tools.mcp.results import line

if TYPE_CHECKING:
    from mcp_types import ReadResourceResult

PROFILE = "profile=mcp-app"
MIME_TYPE = f"text/html;{PROFILE}"
MAX_PAGE = 8 << 20  # characters of a page, and of a result that a page gets
MAX_DOMAINS = 64  # of each kind
DOMAINS = ("connectDomains", "resourceDomains", "frameDomains", "baseUriDomains")
PERMISSIONS = ("camera", "microphone", "geolocation", "clipboardWrite")
# Exactly what may stand in a content policy: a text that holds more could end a directive and begin another.
_ORIGIN = lazy_pattern(r"(?:https|wss)://(?:\*\.)?[a-z0-9-]+(?:\.[a-z0-9-]+)*(?::[0-9]{1,5})?")
ALLOWED_ORIGIN = lazy_pattern(r"https://[a-z0-9.*?-]+(?::[0-9*]{1,5})?")  # a glob of origins


class UnusablePage(Exception):
    """The page cannot be shown. The message has the reason."""


class Page(Struct, frozen=True):
    """A page as its server gives it, with the domains and permissions that it asks for."""

    uri: str
    html: str
    csp: Mapping[str, Sequence[str]]
    permissions: Sequence[str]
    border: bool | None = None

    @property
    def definition(self) -> Definition:
        """The page as it is pinned."""
        pinned = {"name": self.uri, "html": sha256(self.html), "characters": len(self.html)}
        pinned |= {"csp": self.csp, "permissions": self.permissions}
        return Definition(self.uri, pinned, sha256(canonical(pinned)), "", {})


def page_of(uri: str, result: ReadResourceResult, listed: object = None) -> Page:
    """Return the page that a server has given. What it asks for may be `listed` instead. Raises UnusablePage."""
    found = next((one for one in result.contents if str(one.uri) == uri), None)
    if found is None:
        raise UnusablePage("its server has no such page")
    kind, *parameters = (found.mime_type or "").lower().replace(" ", "").split(";")
    if kind != "text/html" or PROFILE not in parameters:
        raise UnusablePage(f"its type is {line(found.mime_type or 'not stated')}, not {MIME_TYPE}")
    html = getattr(found, "text", None)
    if html is None:
        try:
            html = base64.b64decode(getattr(found, "blob", "")).decode("utf-8", "replace")
        except (binascii.Error, ValueError):
            raise UnusablePage("its data are damaged") from None
    if not 0 < len(html) <= MAX_PAGE:
        raise UnusablePage(f"it has {len(html):,} characters, and 1 to {MAX_PAGE:,} can be shown")
    asked = _object(_object(found.meta).get("ui")) or _object(_object(listed).get("ui"))
    csp, wanted = _object(asked.get("csp")), _object(asked.get("permissions"))
    border = asked.get("prefersBorder")
    return Page(
        uri,
        html,
        {kind: _origins(csp.get(kind)) for kind in DOMAINS},
        [name for name in PERMISSIONS if name in wanted],
        border if isinstance(border, bool) else None,
    )


def is_page(name: str) -> bool:
    """Return whether a pin is that of a page, and not of a tool."""
    return name.startswith(PAGES)


def allowed(csp: Mapping[str, Sequence[str]], globs: Iterable[str]) -> dict[str, list[str]]:
    """Return the domains that an admin has allowed; a socket to a host counts as a connection to it."""
    globs = tuple(globs)
    return {
        kind: [one for one in asked if any(fnmatchcase(one.replace("wss://", "https://", 1), glob) for glob in globs)]
        for kind, asked in csp.items()
    }


def _object(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _origins(asked: object) -> list[str]:
    given = asked if isinstance(asked, list) else []
    plain = (one.rstrip("/") for one in given if isinstance(one, str))
    return [one for one in dict.fromkeys(plain) if _ORIGIN.fullmatch(one)][:MAX_DOMAINS]
