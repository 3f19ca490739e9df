"""The examples of CommonMark as outlines, in the form in which the page's own elements are outlined.

`<p|words>`, `<a href title|words>`, `<code language|text>`. An outline leaves aside where the page differs on purpose
and everywhere alike (docs/markdown.md): headings are two levels lower, the paragraphs of tight lists are elements.
"""

from __future__ import annotations

from html.parser import HTMLParser
from typing import NamedTuple

TABLE = {"table", "thead", "tbody", "tr", "th", "td"}
BLOCKS = {"p", "ul", "ol", "li", "blockquote", "hr", "pre", "notes", *TABLE, *(f"h{level}" for level in range(1, 7))}
LOOSE = {"", "ul", "ol", "blockquote", "notes", "table", "thead", "tbody", "tr"}  # hold blocks and no words

# Draws texts and returns their outlines, beside the outlines that are expected, their addresses alike.
OUTLINES = r"""async (rows) => {
  const { Markdown } = await import("/page/js/markdown/markdown.js");
  const plain = (href) => { try { return decodeURIComponent(href); } catch { return href; } };
  const followed = (href) => URL.canParse(href) && /^(https?|mailto):/i.test(href);
  const address = (href) => plain(followed(href) ? new URL(href).href : href);
  const inside = (node) => [...node.childNodes].map(outline).join("");
  const titled = (node) => (node.title ? ` "${node.title}"` : "");
  const host = (node) => node.querySelector(":scope > .link-host:last-child")?.textContent.slice(1, -1) ?? "";
  const outline = (node) => {
    if (node.nodeType === Node.TEXT_NODE) return node.data;
    const name = node.localName;
    if (node.matches(".markdown-part, .table-box")) return inside(node);
    if (node.matches(".note-back")) return "";
    if (node.matches(".notes li > p")) return `<p|${inside(node).trimEnd()}>`;
    if (node.matches("sup.note-mark")) return `<note ${node.textContent}|>`;
    if (node.matches(".notes")) return `<notes|${inside(node)}>`;
    if (node.matches(".task-box")) return node.matches(".done") ? "[x]" : "[ ]";
    if (node.matches("li > p") && !node.closest("ul, ol").classList.contains("loose")) return inside(node);
    if (node.matches("figure, .formula")) {
      const code = node.querySelector("code");
      return `<code ${code.dataset.language ?? ""}|${code.textContent}>`;
    }
    if (/^h[3-6]$/.test(name)) return `<h${/size-(\d)/.exec(node.className)[1]}|${inside(node)}>`;
    if (name === "bdi") return "";
    if (node.matches(".picture")) {
      const alt = inside(node).trim().replace(/^image: ?/, "").replace(/^no description$/, "");
      return `<img${titled(node)}|${alt}>`;
    }
    if (node.matches("a, .not-link")) {
      const words = inside(node);
      return `<a ${address(node.getAttribute("href") ?? host(node))}${titled(node)}|${
        node.querySelector(".link-host") ? words.replace(/ $/, "") : words}>`;
    }
    if (name === "br" || name === "hr") return `<${name}>`;
    const start = node.getAttribute("start") ?? (/^t[hd]$/.test(name) ? node.className : "");
    return `<${name}${start ? ` ${start}` : ""}|${inside(node)}>`;
  };
  const draw = (pieces) => {
    const markdown = new Markdown();
    for (const piece of pieces) {
      markdown.write(piece);
      if (pieces.length > 1) markdown.draw();
    }
    markdown.end();
    return inside(markdown.element);
  };
  return rows.map(([text, expected]) => ({
    expected: expected.replace(/\u0001(.*?)\u0002/gs, (_, href) => address(href)),
    whole: draw([text]),
    streamed: draw(text.split("")),
  }));
}"""


# Streams texts, by the page's own reader or by markdown-it; returns for each how many characters that stood on the page
# were taken back, and the milliseconds that all of it took.
STREAMS = """async ([texts, size, own]) => {
  const { Markdown } = await import("/page/js/markdown/markdown.js");
  const ours = () => {
    const markdown = new Markdown();
    return [markdown.element, (piece) => { markdown.write(piece); markdown.draw(); }, () => markdown.end()];
  };
  const plugin = (name) => window[name]?.default ?? window[name];
  const theirs = () => {
    const library = (window.markdownit.default ?? window.markdownit)({ linkify: true });
    library.use(plugin("markdownitFootnote")).use(plugin("markdownitTaskLists"));
    const element = document.createElement("div");
    let text = "";
    return [element, (piece) => { element.innerHTML = library.render((text += piece)); }, () => {}];
  };
  // Characters that stay: the beginning, the end, and what of the rest stands there in the same order.
  const kept = (before, now) => {
    let start = 0, end = 0;
    const most = Math.min(before.length, now.length);
    while (start < most && before[start] === now[start]) start += 1;
    while (end < most - start && before.at(-1 - end) === now.at(-1 - end)) end += 1;
    const rest = now.slice(start, now.length - end);
    let row = new Uint16Array(rest.length + 1);
    for (const sign of rest.length ? before.slice(start, before.length - end) : "") {
      const next = new Uint16Array(row.length);
      for (let at = 1; at < row.length; at += 1)
        next[at] = rest[at - 1] === sign ? row[at - 1] + 1 : Math.max(row[at], next[at - 1]);
      row = next;
    }
    return start + end + row.at(-1);
  };
  return texts.map((text) => {
    const [element, write, end] = own ? ours() : theirs();
    let before = "", back = 0, took = 0;
    const step = (work) => {
      const began = performance.now();
      work();
      took += performance.now() - began;
      const now = element.textContent;
      back += before.length - kept(before, now);
      before = now;
    };
    for (let at = 0; at < text.length; at += size) step(() => write(text.slice(at, at + size)));
    step(end);
    return [back, took];
  });
}"""


class Frame(NamedTuple):
    """An open element: how its outline begins, and its children so far."""

    name: str
    head: str
    parts: list[str]


class Outline(HTMLParser):
    """The outline of a piece of HTML. Addresses stand between U+0001 and U+0002."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.frames = [Frame("", "", [])]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if tag in BLOCKS:
            self._end_line()
        title = f' "{given["title"]}"' if given.get("title") else ""
        match tag:
            case "hr" | "br":
                self._put(f"<{tag}>")
            case "img":
                self._put(f"<img{title}|{given['alt']}>")
            case "code" if self.frames[-1].name == "pre":
                language = given.get("class", "").removeprefix("language-")
                self.frames.append(Frame(tag, f"<code {language}|", []))
            case "a":
                self.frames.append(Frame(tag, f"<a \u0001{given['href']}\u0002{title}|", []))
            case "input":
                self._put("[x]" if "checked" in given else "[ ]")
            case _:
                start = f" {given['start']}" if "start" in given else given.get("style", "").replace("text-align:", " ")
                self.frames.append(Frame(tag, "" if tag == "pre" else f"<{tag}{start}|", []))

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)  # which closes what is empty

    def handle_endtag(self, tag: str) -> None:
        if tag in BLOCKS:
            self._end_line()
        frame = self.frames.pop()
        self._put("".join([frame.head, *frame.parts, ">" if frame.head else ""]))

    def handle_data(self, data: str) -> None:
        frame = self.frames[-1]
        if frame.name in LOOSE or (frame.name == "li" and self._after_block()):
            data = data.removeprefix("\n")
        if frame.parts and frame.parts[-1] == "<br>":
            data = data.removeprefix("\n")
        if data:
            self._put(data)

    def _after_block(self) -> bool:
        parts = self.frames[-1].parts
        return not parts or parts[-1].startswith(tuple(f"<{name}" for name in (*BLOCKS, "code ")))

    def _end_line(self) -> None:
        parts = self.frames[-1].parts
        if self.frames[-1].name in {"", "li", "blockquote"} and parts and parts[-1].endswith("\n"):
            parts[-1] = parts[-1][:-1]

    def _put(self, part: str) -> None:
        self.frames[-1].parts.append(part)


def outline(html: str) -> str:
    parser = Outline()
    parser.feed(html)
    parser.close()
    return "".join(parser.frames[0].parts)
