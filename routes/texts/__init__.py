"""The texts of the page and of `dragoman chat`: a table per language, a text a key, in `<language>.json`.

A text has `{name}` where a value goes; one with a number that changes words is an object of the plural categories "one"
and "other", chosen by the value `count`. The page reads the same tables (routes/page/js/dom/texts.js), without those
whose key begins with "terminal.". English is whole; what another language does not have is shown in English. Another
language is one file here, and a row in LANGUAGES of the page's module.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from functools import cache
from pathlib import Path

FOLDER = Path(__file__).parent
ENGLISH = "en"
TERMINAL = "terminal."  # what the keys of `dragoman chat` begin with

Text = str | dict[str, str]
Table = dict[str, Text]


@cache
def table(language: str) -> Table:
    """The texts of a language by their key, as they are in its file."""
    read: Table = json.loads((FOLDER / f"{language}.json").read_text(encoding="utf-8"))
    return read


def languages() -> list[str]:
    """The languages that have a file, sorted."""
    return sorted(path.stem for path in FOLDER.glob("*.json"))


def page_table(language: str) -> Table:
    """The texts that the page needs."""
    return {key: text for key, text in table(language).items() if not key.startswith(TERMINAL)}


@cache
def language_of(environment: tuple[tuple[str, str], ...]) -> str:
    """The language of a terminal's locale variables, English where there is no table for it."""
    given = dict(environment)
    locale = next((given[name] for name in ("LC_ALL", "LC_MESSAGES", "LANG") if given.get(name)), "")
    language = locale.partition(".")[0].partition("_")[0].lower()
    return language if language in languages() else ENGLISH


def text(key: str, environment: Mapping[str, str] | None = None, /, **values: object) -> str:
    """The text of a key for `dragoman chat`, in the language of the environment (by default of this process).

    Raises KeyError for a key that English does not have.
    """
    given = os.environ if environment is None else environment
    names = ("LC_ALL", "LC_MESSAGES", "LANG")
    language = language_of(tuple((name, given.get(name, "")) for name in names))
    found = table(language).get(key) or table(ENGLISH)[key]
    if isinstance(found, dict):
        found = found["one" if values.get("count") == 1 else "other"]
    mark = "," if language == ENGLISH else "."  # between thousands
    shown = {name: f"{one:,}".replace(",", mark) if type(one) is int else one for name, one in values.items()}
    return found.format(**shown) if values else found
