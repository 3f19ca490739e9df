"""One word for each thing: the texts of page and terminal, and their documents, in each language."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

import pytest

from routes.texts import languages, table
from tests import ROOT

# A word that is not used, and the one that is. Patterns ignore case, and are read in every form of a text.
GLOSSARY: Mapping[str, Mapping[str, str]] = {
    "en": {
        r"sessions?": "conversation",
        r"(?:(?:this|next|last|a|the|each|earlier|that|long|whole) )turns?|turns? (?:of|that|has|have)": "run",
        r"rounds?": "step",
        r"assistants?": "agent",
        r"(?<!background )jobs?": "background job",
        r"tool calls?": "call",
    },
    "de": {
        r"gespräche?[sn]?": "Unterhaltung",
        r"sitzung(?:en)?": "Unterhaltung",
        r"(?:modell)?runden?": "Lauf, Schritt",
        r"durchl(?:auf|äufe)\w*": "Lauf",
        r"erlaubniss?e?\w*": "Freigabe",
        r"kommandos?": "Befehl",
        r"(?:hintergrund)?auftr(?:ag|äge)\w*": "Hintergrundjob",
        r"assistent\w*": "Agent",
        r"(?<!system-)prompts?": "Vorlage",
        r"kennzeichen": "Label",
        r"angehalten": "gestoppt, pausiert",
    },
}
# Texts in which a word has another meaning.
EXCEPTIONS: Mapping[str, Collection[str]] = {
    "en": (),
    "de": ("safety.canary",),  # what a model receives is a prompt in German, too
}
DOCUMENTS = ("docs/page.md", "docs/terminal.md")


@pytest.mark.parametrize("language", languages())
def test_a_thing_has_one_name(language: str) -> None:
    found: dict[str, str] = {}
    for key, given in table(language).items():
        if key in EXCEPTIONS[language]:
            continue
        for form in [given] if isinstance(given, str) else given.values():
            found |= {f"{key}: {seen}": right for seen, right in wrong_words(form, language)}
    assert not found, "use the word of the glossary"


def test_the_exceptions_are_there() -> None:
    assert not [key for language, keys in EXCEPTIONS.items() for key in keys if key not in table(language)]


@pytest.mark.parametrize("document", DOCUMENTS)
def test_a_document_of_the_surfaces_has_the_same_words(document: str) -> None:
    prose = re.sub(r"`[^`]*`|\([^)\s]*\)", " ", (ROOT / document).read_text())
    assert not wrong_words(prose, "en"), "use the word of the glossary"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("The assistant has ended this turn.", ["assistant", "this turn"]),
        ("Turn off. Background jobs go on.", []),
        ("Stop this job after 3 rounds.", ["job", "rounds"]),
    ],
)
def test_a_word_beside_the_glossary_is_found(text: str, words: list[str]) -> None:
    assert sorted(seen for seen, _ in wrong_words(text, "en")) == sorted(words)


def wrong_words(text: str, language: str) -> list[tuple[str, str]]:
    """Words that the glossary does not have, with the right ones. Names in braces and commands are left out."""
    prose = re.sub(r"\{\w+\}|`[^`]*`|/\w+|--\w+", " ", text)
    return [
        (seen[0], right)
        for word, right in GLOSSARY[language].items()
        for seen in re.finditer(rf"(?<!\w)(?:{word})(?!\w)", prose, re.IGNORECASE)
    ]
