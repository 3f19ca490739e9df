"""The tools that fit a text: ranked by words (BM25), and by meaning where there is something that knows it.

Verbs and nouns of the table below are found by each other: "show" asks for what lists and gets. What a text only
quotes or is about (an address, a file's name) counts as its kind. The ranks of both ways are fused: those by words
weigh as much as words of the text are known to the index at all, those by meaning the rest. So a text in another
language goes by meaning.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Protocol

from parsing.arguments import properties_of
from tools.base.patterns import lazy_pattern
from tools.tool import Tool

MAX_MESSAGE = 4000  # characters of a text
MAX_QUERY = 64  # words of it
MAX_DESCRIPTION, MAX_ARGUMENT, MAX_BEGINNING = 600, 200, 100  # characters of what is indexed
MAX_SENTENCE = 160  # characters of a description whose meaning is compared
CANDIDATES = 100  # of each way
RANK_CONSTANT = 10
LEADING_VERBS = 2  # of a text: later ones tell of something else
_COMMON = """
a an and any are as at be but by can could do does for from give has have hello how i if in into is it its let me my
need no not now of on one or our out please so some tell that the their them then there these this to up us use want was
we what when where which who will with would you your
"""
# Each row has verbs, or nouns, that mean the same.
_VERBS = """
show list get read view find fetch search look query see check describe display what which who know where how when
create add new make write start begin insert put build generate compose file report
delete remove drop forget erase clear purge throw rid
update edit change modify rename set alter fix correct replace adjust patch
send post tell message reply answer notify comment write
move transfer rename transition postpone reschedule shift
copy fork duplicate clone
run execute start launch call deploy install
close stop end cancel quit complete finish tick done
download get fetch export save
upload import attach
go navigate visit
press click tap
assign give
"""
_NOUNS = """
folder directory
mail email gmail inbox
pr pull
ticket issue bug
picture image screenshot photo
appointment event calendar meeting
repo repository
todo task
internet web online
document doc
key token
row record
column field
"""
# What stands for more than its words, and the words of its kind.
_KINDS = (
    (lazy_pattern(r"https?://\S+"), " url web page "),
    (lazy_pattern(r"[\w.+-]{1,64}@[\w.-]{1,128}"), " email "),
    (lazy_pattern(r"\b[\w-]{1,64}(?:\.[\w-]{1,64}){0,4}\.(?:com|org|net|io)\b"), " url web page "),
    (lazy_pattern(r"\b\w[\w./-]{0,128}\.[a-z]{2,4}\b"), " file "),
)
_QUOTED = lazy_pattern(r'"[^"]*"')
_WORD = lazy_pattern(r"[^\W_]+")
_HUMP = lazy_pattern(r"(?<=[a-z0-9])(?=[A-Z])")
_ENDING = lazy_pattern(r"(?:ing|ed|es|s)\Z")
_SENTENCE = lazy_pattern(r"(?<=[.!?])\s|\n")
_SHORT_WORD = 4
_WEIGHTS = "8.0, 2.0, 1.0, 3.0"  # of a word in the name, the description, the arguments; of a meaning


class Meaning(Protocol):
    async def nearest(self, text: str, others: Mapping[str, str]) -> Sequence[str]:
        """Return the keys of the others that are nearest by their meaning, best first; none while that is not known."""


def _rows(table: str) -> dict[str, set[str]]:
    """The marks of each word: one for each row that it stands in."""
    found: dict[str, set[str]] = {}
    for line in table.strip().splitlines():
        for word in line.split():
            found.setdefault(word, set()).add(line.split()[0])
    return found


COMMON, VERBS, NOUNS = frozenset(_COMMON.split()), _rows(_VERBS), _rows(_NOUNS)


class Index:
    """Finds tools by words."""

    def __init__(self, tools: Sequence[Tool]) -> None:
        self.tools = list(tools)
        self._db = sqlite3.connect(":memory:", check_same_thread=False)
        columns = "name, description, arguments, meanings"
        self._db.execute(f"CREATE VIRTUAL TABLE tools USING fts5({columns}, tokenize = 'porter unicode61')")
        self._db.executemany("INSERT INTO tools VALUES (?, ?, ?, ?)", map(_indexed, self.tools))

    @cached_property
    def texts(self) -> dict[str, str]:
        """The text of each tool, by its name, whose meaning is compared."""
        return {tool.name: _sentence(tool) for tool in self.tools}

    def best(self, text: str, limit: int) -> list[Tool]:
        """Return the tool of exactly this name, or those with any of the words, else with their prefixes."""
        if named := [tool for tool in self.tools if tool.name == text.strip()]:
            return named
        words = _telling(text)
        telling = [word for word in words if word not in COMMON]
        if not telling:
            return []
        marks = " ".join([*_verbs(words)[:LEADING_VERBS], *_nouns(telling)]).split()
        terms = [f'{{name description arguments}} : "{word}"' for word in telling]
        terms += [f'meanings : "{mark}"' for mark in dict.fromkeys(marks)]
        return self._matching(terms, limit) or self._matching([f'"{word[:6]}"*' for word in telling], limit)

    def known(self, text: str) -> float:
        """Return the share of the text's telling words that any tool has."""
        telling = [word for word in _telling(text) if word not in COMMON]
        return sum(bool(self._matching([f'"{word}"'], 1)) for word in telling) / max(1, len(telling))

    def _matching(self, terms: Sequence[str], limit: int) -> list[Tool]:
        if not terms:
            return []
        rows = self._db.execute(
            f"SELECT rowid FROM tools WHERE tools MATCH ? ORDER BY bm25(tools, {_WEIGHTS}), rowid LIMIT ?",
            (" OR ".join(terms), limit),
        )
        return [self.tools[number - 1] for (number,) in rows]


async def ranked(index: Index, text: str, meaning: Meaning | None) -> list[Tool]:
    """Return the tools that fit the text, best first."""
    text = text[:MAX_MESSAGE]
    words = await asyncio.to_thread(index.best, text, CANDIDATES)  # a hostile message takes 70 ms
    by_meaning = await meaning.nearest(text, index.texts) if meaning else ()
    if not by_meaning:
        return words
    known, by_name = await asyncio.to_thread(index.known, text), {tool.name: tool for tool in index.tools}
    scores = dict[str, float]()
    for weight, names in ((known, [tool.name for tool in words]), (1 - known, by_meaning[:CANDIDATES])):
        for rank, name in enumerate(names, start=1):
            scores[name] = scores.get(name, 0.0) + weight / (RANK_CONSTANT + rank)
    return [by_name[name] for name in sorted(scores, key=scores.__getitem__, reverse=True)]


def shared(tools: Sequence[Tool], sources: Mapping[str, Collection[str]], most: int) -> Iterator[Tool]:
    """The tools in their order, those behind that are more than `most` of one server."""
    server_of = {name: source for source, names in sources.items() for name in names}
    behind, count = list[Tool](), Counter[str]()
    for tool in tools:
        server = server_of.get(tool.name, "")
        count[server] += 1
        if count[server] > most:
            behind.append(tool)
        else:
            yield tool
    yield from behind


def _indexed(tool: Tool) -> tuple[str, str, str, str]:
    own, begins = _words(_own_name(tool)), _words(tool.description[:MAX_BEGINNING])
    marks = (_verbs(own)[:1] or _verbs(begins[:1])) + _nouns([*own, *begins])
    arguments = spaced(" ".join(_arguments(tool.parameters)))
    name = spaced(tool.name.removeprefix("mcp__"))
    return name, spaced(tool.description[:MAX_DESCRIPTION]), arguments, " ".join(marks)


def _arguments(schema: Mapping[str, Any], depth: int = 0) -> Iterator[str]:
    """The names of a tool's arguments and of their parts, and what is said of the former."""
    for name, part in properties_of(schema).items():
        yield name
        if isinstance(part, Mapping) and not depth:
            said = part.get("description")
            yield said[:MAX_ARGUMENT] if isinstance(said, str) else ""
            items = part.get("items")
            yield from _arguments(part, depth + 1)
            yield from _arguments(items, depth + 1) if isinstance(items, Mapping) else ()


def _telling(text: str) -> list[str]:
    """Return the words of a text, each once; without those that it quotes, if there are others."""
    for pattern, kind in _KINDS:
        text = pattern.sub(kind, text)
    words = _words(_QUOTED.sub(" ", text))
    if all(word in COMMON for word in words):
        words = _words(text)
    return list(dict.fromkeys(words))[:MAX_QUERY]


def _verbs(words: Sequence[str]) -> list[str]:
    """The marks of the verbs among these words, one text for each."""
    return [" ".join(f"v{mark}" for mark in sorted(marks)) for word in words if (marks := _meanings(word, VERBS))]


def _nouns(words: Sequence[str]) -> list[str]:
    return sorted({f"n{mark}" for word in words for mark in _meanings(word, NOUNS)})


def _meanings(word: str, table: Mapping[str, set[str]]) -> set[str]:
    stem = _ENDING.sub("", word) if len(word) > _SHORT_WORD else word
    return table.get(word) or table.get(stem) or set()


def _sentence(tool: Tool) -> str:
    """A tool's own name as words, and the first sentence of its description."""
    own = " ".join(_words(_own_name(tool)))
    return f"{own}: {_SENTENCE.split(tool.description.strip())[0][:MAX_SENTENCE]}"


def _own_name(tool: Tool) -> str:
    """The name without that of the server."""
    return tool.name.removeprefix("mcp__").partition("__")[2] or tool.name


def _words(text: str) -> list[str]:
    return [word.casefold() for word in _WORD.findall(spaced(text))]


def spaced(text: str) -> str:
    """`createPullRequest` as three words; without halves of characters, which SQLite does not take."""
    return _HUMP.sub(" ", text).encode(errors="replace").decode()
