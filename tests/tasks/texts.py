"""`python -m tests.tasks.texts`: puts the tables of routes/texts in order, a key a line, sorted, each once.

Two changes that add keys merge by keeping the lines of both; this mends the commas. `--check` only looks.
"""

from __future__ import annotations

import json
import re
import sys

from routes.texts import FOLDER

ROW = re.compile(r"""^\s*("(?:[^"\\]|\\.)+"):\s*(.+?),?\s*$""", re.MULTILINE)


def tidy(written: str) -> str:
    """The same table in order; of a key that is there twice, the last. Raises ValueError for what is no row."""
    rows = {json.loads(key): json.loads(value) for key, value in ROW.findall(written)}
    lines = [f"  {shown(key)}: {shown(rows[key])}" for key in sorted(rows)]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def shown(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def main() -> None:
    for path in sorted(FOLDER.glob("*.json")):
        written = path.read_text(encoding="utf-8")
        if tidy(written) == written:
            continue
        if "--check" in sys.argv:
            sys.exit(f"{path.name} is not in order: run `python -m tests.tasks.texts`.")
        path.write_text(tidy(written), encoding="utf-8")


if __name__ == "__main__":
    main()
