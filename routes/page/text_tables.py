"""A language's texts for the page in two files: those of the first load, and those of modules that come on demand."""

from __future__ import annotations

import json
from collections.abc import Mapping

from routes.texts import Table, languages, page_table
from tools.base.patterns import lazy_pattern

# Whole keys, as in `t("a.b")`; and the beginnings of keys that are put together: `a.${b}` and `ts("a", ...)` use all
# below "a.".
WHOLE = lazy_pattern(r"""["'`]([a-z][a-z0-9_]*(?:\.[A-Za-z0-9_]+)+)["'`]""")
BEGUN = lazy_pattern(r"""["'`]([a-z][a-z0-9_]*(?:\.[A-Za-z0-9_]+)*\.)[${]|\bts\(\s*["']([\w.]+)["']""")
NEEDED = lazy_pattern(rb'"/page/(js/[^"]+)"')  # the modules that the index names


def text_files(index: bytes, bodies: Mapping[str, bytes]) -> dict[str, bytes]:
    """The files `texts/<language>.json` and `texts/<language>.more.json`, by their names."""
    first = "\n".join(bodies[name.decode()].decode() for name in NEEDED.findall(index))
    found: dict[str, bytes] = {}
    for language in languages():
        table = page_table(language)
        needed = keys_in(first, table)
        found[f"texts/{language}.json"] = _packed({key: table[key] for key in table if key in needed})
        found[f"texts/{language}.more.json"] = _packed({key: table[key] for key in table if key not in needed})
    return found


def keys_in(source: str, table: Table) -> set[str]:
    """The keys of the table that a source uses."""
    whole = set(WHOLE.findall(source))
    begun = tuple(first or f"{second}." for first, second in BEGUN.findall(source))
    return {key for key in table if key in whole or key.startswith(begun)}


def _packed(table: Table) -> bytes:
    return json.dumps(table, ensure_ascii=False, separators=(",", ":")).encode()
