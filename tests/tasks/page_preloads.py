"""`python -m tests.tasks.page_preloads`, after a module of the page has come or gone, or is needed sooner or later.

It names the modules that are always needed in the index, and sets where each module imports its texts from.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from tests.support.page.modules import ENTRIES, PAGE, reached

FIRST = '    <script type="module" src="/page/js/dom/errors.js"'
TEXTS = re.compile(r'((?:from|import) "(?:\.{1,2}/)+(?:dom/)?)(more_)?texts\.js"')
OWN = ("texts.js", "more_texts.js")  # which hold them


def needed_at_once() -> set[Path]:
    return reached([PAGE / "js" / name for name in ENTRIES], static=True)


def misplaced_imports() -> Iterator[tuple[Path, str]]:
    """Modules that import their texts from the wrong one of the two, and their text with the right one."""
    at_once = needed_at_once()
    for path in sorted((PAGE / "js").rglob("*.js")):
        if path.name in OWN and path.parent.name == "dom":
            continue
        written = path.read_text()
        right = TEXTS.sub(rf'\g<1>{"" if path in at_once else "more_"}texts.js"', written)
        if right != written:
            yield path, right


def main() -> None:
    for path, right in list(misplaced_imports()):
        path.write_text(right)
    entries = {PAGE / "js" / name for name in ENTRIES}
    needed = sorted(path.relative_to(PAGE).as_posix() for path in needed_at_once() - entries)
    links = "".join(f'    <link rel="modulepreload" href="/page/{name}" />\n' for name in needed)
    index = PAGE / "index.html"
    text = re.sub(r' *<link rel="modulepreload"[^>]*>\n', "", index.read_text())
    index.write_text(text.replace(FIRST, links + FIRST, 1))


if __name__ == "__main__":
    main()
