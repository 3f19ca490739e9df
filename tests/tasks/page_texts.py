"""`python -m tests.tasks.page_texts`, after a module of the page has come or gone, or is needed sooner or later.

It sets where each module imports its texts from: those that are joined into a file have them with it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from routes.page import without_comments
from routes.page.joined import ALONE, DECIDE, GROUPS, Modules
from tests.support.page.modules import PAGE

TEXTS = re.compile(r'((?:from|import) "(?:\.{1,2}/)+(?:dom/)?)(more_)?texts\.js"')
OWN = ("texts.js", "turn_texts.js", "more_texts.js")  # which hold them


def modules() -> Modules:
    paths = sorted((PAGE / "js").rglob("*.js"))
    return Modules({path.relative_to(PAGE).as_posix(): without_comments(path) for path in paths})


def misplaced_imports() -> Iterator[tuple[Path, str]]:
    """Modules that import their texts from the wrong one of the two, and their text with the right one."""
    all_modules = modules()
    joined = {*ALONE, DECIDE, *(name for group in GROUPS for name in all_modules.members(group))}
    for path in sorted((PAGE / "js").rglob("*.js")):
        if path.name in OWN and path.parent.name == "dom":
            continue
        written = path.read_text()
        more = "" if path.relative_to(PAGE).as_posix() in joined else "more_"
        right = TEXTS.sub(rf'\g<1>{more}texts.js"', written)
        if right != written:
            yield path, right


def main() -> None:
    for path, right in list(misplaced_imports()):
        path.write_text(right)


if __name__ == "__main__":
    main()
