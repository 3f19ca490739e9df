"""HTML to readable text: headings, lists, links and tables as Markdown, without what a page hides."""

from __future__ import annotations

import time
from collections import Counter
from urllib.parse import urljoin

from msgspec import Struct

from tools.base.patterns import lazy_pattern


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


_BLOCKS = _set(
    "address article aside blockquote body center dd details dialog div dl dt fieldset figcaption figure footer form "
    "h1 h2 h3 h4 h5 h6 header hgroup hr html legend li main menu nav ol p pre search section summary table ul"
)
_VOID = _set("area base br col embed hr img input link meta param source track wbr")
# Elements that no browser shows as text, or only where scripts do not run.
_UNSHOWN = _set(
    "applet audio canvas datalist iframe math noembed noframes noscript object script select style svg template "
    "textarea video"
)
_INLINE = _set(
    "a abbr acronym b bdi bdo big button cite code data del dfn em font i ins kbd label mark math nobr q rp rt ruby s "
    "samp small span strike strong sub sup time tt u var wbr"
)
_ELEMENTS = (
    _BLOCKS | _VOID | _UNSHOWN | _INLINE | _set("body caption head html option tbody td tfoot th thead title tr")
)
_HEADINGS = {f"h{level}": "#" * level + " " for level in range(1, 7)}
# What a start tag ends -> where the search for it stops.
_ENDS: dict[str, tuple[frozenset[str], frozenset[str]]] = {
    "li": (_set("li"), _set("ul ol menu")),
    "dt": (_set("dt dd"), _set("dl")),
    "dd": (_set("dt dd"), _set("dl")),
    "tr": (_set("tr"), _set("table")),
    "td": (_set("td th"), _set("tr table")),
    "th": (_set("td th"), _set("tr table")),
    "a": (_set("a"), _set("td th table")),
}
_SEARCHED = 32
_HREF_CHARACTERS = 300
_GAPS = ("", " ", "\n", "\n\n")
_SPACE, _LINE, _PARAGRAPH = 1, 2, 3
_TITLE_CHARACTERS = 300
# One text or tag is read in one go: this many characters of the worst take some seconds.
_CHARACTERS = 2_000_000
# Looking at the clock costs as much as a tag does.
_CLOCK = 64

# Inline styles that leave nothing to see. White space is taken out before.
_HIDING = lazy_pattern(
    r"(?:^|;)(?:display:none|visibility:(?:hidden|collapse)|content-visibility:hidden"
    r"|(?:opacity|font-size|zoom|(?:max-)?(?:height|width)):(?:0+\.?0*|\.0+)(?![\d.])"
    r"|(?:left|top|right|bottom|text-indent|margin-left|margin-top):-\d{3,}"
    r"|transform:scale\(0|clip:rect\(0|clip-path:inset\((?:50|100)%)"
)


class Page(Struct, frozen=True):
    """The visible text of a page. `hidden` counts the characters that it hides; `cut`: not all was read."""

    title: str
    text: str
    hidden: int = 0
    cut: bool = False


def readable(html: str, url: str, time_limit_s: float) -> Page:
    """The text of a page at `url`, in bounded time and memory whatever the page is.

    Tags are taken as they come, without a tree: some 30 KB of HTML can make a tree of gigabytes. What a style sheet
    or a script hides is shown: this is only a first defence, and the text stays untrusted.
    """
    # Importing it takes 0.15 s, which a server should not wait for when it starts.
    from justhtml import stream

    reader = _Reader(url)
    end = time.monotonic() + time_limit_s
    for number, event in enumerate(stream(html[:_CHARACTERS]), start=1):
        match event:
            case ("start", (name, attributes)):
                reader.start(name, attributes)
            case ("end", name):
                reader.end(name)
            case ("text", text):
                reader.text(text)
        if number % _CLOCK == 0 and time.monotonic() > end:
            return reader.page(cut=True)
    return reader.page(cut=len(html) > _CHARACTERS)


def plain_text(html: str) -> str:
    """The visible text of a short piece of HTML, without markup. What is no element of HTML, as `list<int>`, stays."""
    if "<" not in html and "&" not in html:
        return html
    from justhtml import stream  # as above

    pieces, hiding = [], list[str]()
    for event in stream(html):
        match event:
            case ("start", (name, attributes)) if name not in _VOID and (hiding or is_hidden(name, attributes)):
                hiding.append(name)
            case ("end", name) if name in hiding:
                while hiding.pop() != name:
                    pass
            case ("start", (name, _)) | ("end", name) if not hiding and name in _ELEMENTS:
                pieces.append("" if name in _INLINE else " ")
            case ("start", (name, _)) if not hiding:
                pieces.append(f"<{name}>")
            case ("end", name) if not hiding:
                pieces.append(f"</{name}>")
            case ("text", text) if not hiding:
                pieces.append(text)
    return "".join(pieces)


def is_hidden(name: str, attributes: dict[str, str | None]) -> bool:
    """Return whether an element is hidden by its name or attributes."""
    if name in _UNSHOWN or "hidden" in attributes or (attributes.get("aria-hidden") or "").strip().lower() == "true":
        return True
    style = attributes.get("style") or ""
    return bool(_HIDING.search("".join(style.lower().split())))


class _Open(Struct, frozen=True):
    """An open element."""

    name: str
    hidden: bool
    href: str = ""


class _Reader:
    """Tags and text in, lines out."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._open: list[_Open] = []
        self._names: Counter[str] = Counter()
        self._hiding = 0
        self._unshown = 0
        self._hidden = 0
        self._title = ""
        self._pieces: list[str] = []
        self._gap = 0
        self._mark = ""  # what stands before the next text: a bullet, a heading's #, a link's bracket

    def start(self, name: str, attributes: dict[str, str | None]) -> None:
        self._end_implied(name)
        if name in _BLOCKS:
            self._break(_PARAGRAPH if name not in ("li", "dt", "dd") else _LINE)
        elif name in ("br", "tr"):
            self._break(_LINE)
        if name == "base" and (href := attributes.get("href")):
            self._url = _joined(self._url, href)
        if name in _VOID:
            return
        hidden = is_hidden(name, attributes)
        href = "" if self._hiding or hidden or name != "a" else self._target(attributes.get("href"))
        self._open.append(_Open(name, hidden, href))
        self._names[name] += 1
        self._hiding += hidden
        self._unshown += name in _UNSHOWN
        if self._hiding:
            return
        if name == "li":
            self._mark = "- "
        elif name in ("td", "th") and self._gap < _LINE:
            self._gap, self._mark = _SPACE, "| "
        elif name in _HEADINGS:
            self._mark = _HEADINGS[name]
        elif href:
            self._mark += "["

    def end(self, name: str) -> None:
        if name in _BLOCKS:
            self._break(_PARAGRAPH if name not in ("li", "dt", "dd") else _LINE)
        if not self._names[name]:
            return
        while self._open:
            if self._close().name == name:
                return

    def text(self, text: str) -> None:
        if self._open and self._open[-1].name == "title" and not self._hiding:
            self._title = self._title or " ".join(text[: 2 * _TITLE_CHARACTERS].split())[:_TITLE_CHARACTERS]
        elif self._hiding:
            self._hidden += 0 if self._unshown else len(text.strip())
        elif self._names["pre"]:
            self._put(text)
        elif words := text.split():
            self._break(_SPACE if text[0].isspace() else 0)
            self._put(" ".join(words))
            self._break(_SPACE if text[-1].isspace() else 0)
        else:
            self._break(_SPACE)

    def page(self, *, cut: bool) -> Page:
        text = "\n".join(line.rstrip() for line in "".join(self._pieces).split("\n"))
        return Page(self._title, text.strip("\n"), self._hidden, cut)

    def _put(self, text: str) -> None:
        if self._pieces:
            self._pieces.append(_GAPS[self._gap])
        self._pieces += (self._mark, text)
        self._gap, self._mark = 0, ""

    def _break(self, gap: int) -> None:
        self._gap = max(self._gap, gap)
        if gap >= _LINE and self._mark == "| ":
            self._mark = ""

    def _end_implied(self, name: str) -> None:
        """End what this start tag ends: most pages leave out some end tags."""
        if name in _BLOCKS and self._names["p"]:
            self._end_nearest(_set("p"), _set("table td th button"))
        if name in _ENDS:
            self._end_nearest(*_ENDS[name])

    def _end_nearest(self, names: frozenset[str], stops: frozenset[str]) -> None:
        for depth, one in enumerate(reversed(self._open[-_SEARCHED:]), start=1):
            if one.name in names:
                for _ in range(depth):
                    self._close()
                return
            if one.name in stops:
                return

    def _close(self) -> _Open:
        closed = self._open.pop()
        self._names[closed.name] -= 1
        self._hiding -= closed.hidden
        self._unshown -= closed.name in _UNSHOWN
        if closed.href:
            if "[" in self._mark:
                self._mark = self._mark.replace("[", "", 1)  # the link had no text
            else:
                self._pieces.append(f"]({closed.href})")
        elif closed.name == "li" or closed.name in _HEADINGS:
            self._mark = ""
        return closed

    def _target(self, href: str | None) -> str:
        """Return the absolute URL of a link; empty for what is no address to read or to fetch."""
        if not href or href.startswith("#") or len(href) > _HREF_CHARACTERS:
            return ""
        joined = _joined(self._url, href)
        return joined if joined.startswith(("http://", "https://")) and len(joined) <= _HREF_CHARACTERS else ""


def _joined(url: str, href: str) -> str:
    try:
        return urljoin(url, "".join(href.split()))
    except ValueError:
        return url
