"""The tables of texts (routes/texts): every text is used and there, and each language says all that English says."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest

from routes.page import files, keys_in
from routes.texts import ENGLISH, FOLDER, TERMINAL, Text, languages, page_table, table, text
from tests import ROOT
from tests.tasks import page_texts
from tests.tasks.texts import tidy

PAGE = ROOT / "routes/page"
OTHERS = [name for name in languages() if name != ENGLISH]
ASKED = re.compile(r"""(?<![\w.])(?:t|pieces|text)\(\s*["']([\w.]+)["']""")
VALUE = re.compile(r"\{(\w+)\}")
COMMENT = re.compile(r"/\*.*?\*/|(?<![:\"'`\\])//[^\n]*", re.DOTALL)
# English where people would read it: a sentence or its beginning, and words in the place of a text.
SENTENCE = re.compile(r"""["`]((?!Bearer )[A-Z][a-z’']*(?: (?:[a-z“(]|\$\{)[^"`\n]*|[^"`\n]*[.?!…]))["`]""")
PLACE = re.compile(
    r"""(?:\b(?:title|placeholder|label|alt|textContent)"?\s*[:=]|"aria-(?:label|description)"[:,]|\bannounce\("""
    r"""|\bfill\([^\n]*,|\bh\([^\n]*,)\s*["`](?:\$\{[^}`]*\}|[^A-Za-z"`\n])*([A-Z][a-z]+\b[^"`\n]*)["`]\s*[,)};]"""
)
LITERALS = {  # not in the tables, by their module
    "apps/app_card.js": "errors that programs get, by their protocol",
    "apps/bridge.js": "errors that programs get, by their protocol",
    "dom/errors.js": "works when nothing else could be loaded, the tables neither",
    "feed/api.js": "an error that a browser would make itself, which nothing shows",
}


def sources() -> str:
    scripts = list((PAGE / "js").rglob("*.js"))
    rooms = ("terminal", "cli", "http", "acp", "transcripts")
    programs = [path for room in rooms for path in (ROOT / "routes" / room).rglob("*.py")]
    return "\n".join(path.read_text() for path in (*scripts, *programs, PAGE / "index.html"))


def forms(given: Text) -> list[str]:
    return [given] if isinstance(given, str) else list(given.values())


def values(given: Text) -> set[str]:
    return {name for form in forms(given) for name in VALUE.findall(form)}


def test_every_text_that_is_asked_for_is_there() -> None:
    asked = set(ASKED.findall(sources()))
    assert len(asked) > 10, "no text is seen"
    assert not asked - table(ENGLISH).keys(), "write these into routes/texts/en.json"


def test_every_text_is_used() -> None:
    unused = table(ENGLISH).keys() - keys_in(sources(), table(ENGLISH))
    assert not unused, f"nothing uses these of routes/texts: {unused}"


def test_the_page_has_no_english_of_its_own() -> None:
    found = []
    for path in sorted((PAGE / "js").rglob("*.js")):
        if path.relative_to(PAGE / "js").as_posix() in LITERALS:
            continue
        for line in COMMENT.sub("", path.read_text()).splitlines():
            found += [f"{path.name}: {seen[1]}" for rule in (SENTENCE, PLACE) for seen in rule.finditer(line)]
    assert not found, "move these into routes/texts/en.json"


@pytest.mark.parametrize(
    "line",
    [
        'h("p", {}, "No model file was added.")',
        'h("button", { type: "button" }, "Close"),',
        'return { "aria-label": `Remove ${name}` };',
        'announce("Saved.");',
        'const words = "Add a message to this turn";',
        "button.textContent = open ? `Show ${more} more` : words;",
    ],
)
def test_a_text_outside_the_tables_is_found(line: str) -> None:
    assert any(rule.search(line) for rule in (SENTENCE, PLACE))


@pytest.mark.parametrize("language", OTHERS)
def test_another_language_has_the_same_keys_with_the_same_values(language: str) -> None:
    own, english = table(language), table(ENGLISH)
    assert own.keys() == english.keys()
    differ = [key for key in own if values(own[key]) != values(english[key])]
    assert not differ


@pytest.mark.parametrize("language", languages())
def test_a_number_has_both_its_forms(language: str) -> None:
    wrong = [
        key for key, given in table(language).items() if isinstance(given, dict) and given.keys() != {"one", "other"}
    ]
    assert not wrong


@pytest.mark.parametrize("language", languages())
def test_a_table_is_sorted_and_has_each_key_once(language: str) -> None:
    path = FOLDER / f"{language}.json"
    assert path.read_text() == tidy(path.read_text()), "run `python -m tests.tasks.texts`"


def test_the_page_names_every_language() -> None:
    written = (PAGE / "js/dom/texts.js").read_text()
    named = re.search(r"LANGUAGES = \{(.*?)\}", written)
    assert named and set(re.findall(r"(\w+):", named[1])) == set(languages())


def test_the_page_gets_no_text_of_the_terminal() -> None:
    assert not [key for key in page_table(ENGLISH) if key.startswith(TERMINAL)]
    assert [key for key in table(ENGLISH) if key.startswith(TERMINAL)]


def test_what_is_opened_later_brings_its_texts_with_it() -> None:
    wrong = {path.name for path, _ in page_texts.misplaced_imports()}
    assert not wrong, "run `python -m tests.tasks.page_texts`"
    page = {name: json.loads(file.body) for name, file in files().items() if name.startswith("texts/")}
    for language in languages():
        parts = [page[f"texts/{language}{part}.json"] for part in ("", ".turns", ".more")]
        assert all(parts) and sum(map(len, parts)) == len(page_table(language))
        assert {key: text for part in parts for key, text in part.items()} == page_table(language)


def test_a_text_of_the_terminal_follows_the_locale() -> None:
    assert text("terminal.thought", {"LANG": "fr_FR.UTF-8"}) == table(ENGLISH)["terminal.thought"]
    assert text("composer.send", {"LANG": "de_AT.UTF-8", "LC_ALL": ""}) == "Senden"
    assert text("composer.send", {"LANG": "de_AT.UTF-8", "LC_ALL": "C"}) == "Send"
    with pytest.raises(KeyError):
        text("terminal.there_is_no_such_text", {})


def test_keys_that_were_merged_twice_are_put_in_order() -> None:
    assert tidy('{\n"b": "2",\n"a": "1"\n"b": "2",\n"c": {"one": "x", "other": "y"},\n}\n') == (
        '{\n  "a": "1",\n  "b": "2",\n  "c": {"one": "x", "other": "y"}\n}\n'
    )
    ended = subprocess.run(
        [sys.executable, "-m", "tests.tasks.texts", "--check"], cwd=ROOT, capture_output=True, check=False
    )
    assert ended.returncode == 0, ended.stderr
