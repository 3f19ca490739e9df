"""`python -m tests.page_preloads`: names the modules that are always needed in the page, after one has come or gone."""

from __future__ import annotations

import re

from tests.test_house_page import ENTRIES, PAGE, reached

FIRST = '    <script type="module" src="/page/js/dom/errors.js"'


def main() -> None:
    entries = [PAGE / "js" / name for name in ENTRIES]
    needed = sorted(path.relative_to(PAGE).as_posix() for path in reached(entries, static=True) - set(entries))
    links = "".join(f'    <link rel="modulepreload" href="/page/{name}" />\n' for name in needed)
    index = PAGE / "index.html"
    text = re.sub(r' *<link rel="modulepreload"[^>]*>\n', "", index.read_text())
    index.write_text(text.replace(FIRST, links + FIRST, 1))


if __name__ == "__main__":
    main()
