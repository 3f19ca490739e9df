"""The house rules of README.md, SECURITY.md, CHANGELOG.md and docs/: complete, up to date, with valid links."""

from __future__ import annotations

import ast
import importlib
import json
import re
import tomllib
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, NamedTuple

import pytest

from app.config.settings import Settings
from tests import ROOT
from tests.support.sources import Source, functions, nothing, sources
from tests.tasks.documents import DOCS, PARTS, Part, anchors, generated, with_part

MAX_README_BYTES = 12_288
LINK = re.compile(r"""\]\(([^)\s]+)\)|(?:src|href)="([^"]+)\"""")
CODE_BLOCK = re.compile(r"^(?P<fence>`{3,})(?P<language>\w*)\n(?P<text>.*?)^(?P=fence)", re.MULTILINE | re.DOTALL)


@cache
def documents() -> dict[str, str]:
    """The texts for people, by their path from the root."""
    paths = [*ROOT.glob("*.md"), *sorted(DOCS.rglob("*.md"))]
    return {path.relative_to(ROOT).as_posix(): path.read_text("utf-8") for path in paths}


def blocks(language: str) -> list[tuple[str, str]]:
    """Where each code block in this language stands, and its text."""
    return [
        (f"{path}:{text.count(chr(10), 0, found.start()) + 1}", found["text"])
        for path, text in documents().items()
        for found in CODE_BLOCK.finditer(text)
        if found["language"] == language and not path.startswith("docs/clients/")  # files of other programs
    ]


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_bytes()) <= MAX_README_BYTES


def test_every_page_is_reached_from_the_readme() -> None:
    linked = set(re.findall(r"\]\((docs/[\w-]+\.md)", documents()["README.md"]))
    linked |= {f"docs/{page}" for page in re.findall(r"\]\((clients/[\w-]+\.md)", documents()["docs/clients.md"])}
    pages = {path for path in documents() if path.startswith("docs/")}
    nothing(sorted(pages - linked), because="README.md does not link to these pages:")


def test_generated_parts_are_up_to_date() -> None:
    stale = [path.name for path, text in generated().items() if path.read_text("utf-8") != text]
    nothing(stale, because="Run `make docs`, which writes parts of these pages:")


def test_a_page_without_the_marks_of_a_part_is_refused() -> None:
    with pytest.raises(ValueError, match="needs the marks"):
        with_part("# nothing", PARTS[0])


def test_a_part_is_written_between_its_marks() -> None:
    part = Part("any.md", "rows", lambda: ["one", "two"])
    page = "Before.\n<!-- generated: rows -->\nold\n<!-- end of rows -->\nAfter.\n"
    written = with_part(page, part)
    assert written == "Before.\n<!-- generated: rows -->\n\none\ntwo\n\n<!-- end of rows -->\nAfter.\n"
    assert with_part(written, part) == written


def targets(path: str) -> Iterator[str]:
    text = CODE_BLOCK.sub("", documents()[path])
    return (one or other for one, other in LINK.findall(text))


@pytest.mark.parametrize("path", documents())
def test_every_link_leads_somewhere(path: str) -> None:
    """Relative links, and anchors of pages; addresses of others are not asked for."""
    broken = []
    for target in targets(path):
        if target.startswith(("http://", "https://")):
            continue
        file, _, anchor = target.partition("#")
        led = (ROOT / path).parent / file if file else ROOT / path
        if not led.exists() or (anchor and anchor not in anchors(led.read_text("utf-8"))):
            broken.append(target)
    nothing(broken, because=f"These links of {path} lead nowhere:")


def test_anchors_are_those_of_github() -> None:
    assert anchors("# One\n\n## The `dragoman chat` command\n\n```\n# no heading\n```\n### a.b [link](c.md)\n") == {
        "one",
        "the-dragoman-chat-command",
        "ab-link",
    }


@pytest.mark.parametrize(("place", "text"), blocks("toml"), ids=lambda value: value if ":" in value[:40] else "")
def test_every_settings_file_is_one(place: str, text: str) -> None:
    unknown = tomllib.loads(text).keys() - Settings.model_fields.keys()
    assert not unknown, f"{place} has settings that do not exist: {unknown}"
    Settings.model_validate({"data_dir": ".", **tomllib.loads(text)})


@pytest.mark.parametrize(("place", "text"), blocks("json"), ids=lambda value: value if ":" in value[:40] else "")
def test_every_json_example_is_json(place: str, text: str) -> None:
    assert all(json.loads(line) for line in text.splitlines()), place


class Row(NamedTuple):
    """A table of the code, the page that describes it, and the words that must stand there for each row."""

    module: str
    table: str
    page: str
    words: Callable[[Any], list[str]]


def route_words(route: Any) -> list[str]:
    path = re.sub(r"\{(\w+)(:\w+)?\}", "{…}", route.path)
    return [f"{route.method} {path}"]


TABLES = (
    Row("tools.catalogue", "TOOLS", "tools.md", lambda tool: [tool.name, *tool.parameters["properties"]]),
    Row("tests.support.documented.routes", "ROUTES", "http-api.md", route_words),
    Row("routes.cli.main", "COMMANDS", "quickstart.md", lambda command: [f"dragoman {command.name}"]),
    Row("parsing.dialects", "DIALECTS", "dialects.md", lambda dialect: [dialect.name]),
    Row("app.models.providers", "PROVIDERS", "models.md", lambda kind: [kind.name]),
)


def in_code(page: str) -> str:
    """Everything that a page writes as code, one piece a line; a route's placeholders may have any name."""
    pieces = re.findall(r"```.*?```|`[^`\n]+`", documents()[f"docs/{page}"], flags=re.DOTALL)
    return re.sub(r"\{\w+\}", "{…}", "\n".join(piece.strip("`") for piece in pieces))


def missing(words: list[str], page: str) -> list[str]:
    code = in_code(page)
    return [word for word in words if not re.search(rf"(?<![\w/-]){re.escape(word)}(?![\w/-])", code)]


@pytest.mark.parametrize("row", TABLES, ids=lambda row: row.table.lower())
def test_every_row_of_a_table_is_described(row: Row) -> None:
    table = getattr(importlib.import_module(row.module), row.table)
    assert table
    words = [word for one in table for word in row.words(one)]
    nothing(missing(words, row.page), because=f"docs/{row.page} says nothing, as code, of these rows of {row.table}:")


def test_fields_of_a_chat_request_are_described() -> None:
    requests = importlib.import_module("routes.protocol.requests")
    for model in (requests.ChatRequest, requests.ApprovalRequest):
        page = "http-api.md" if model is requests.ChatRequest else "approvals-and-sandbox.md"
        nothing(missing([*model.model_fields], page), because=f"docs/{page} says nothing of these fields:")


# What is called with a code, and which argument it is.
CODES = {
    "notice codes": {"Notice": 0, "ProviderNotice": 0},
    "http codes": {"Refused": 1, "TooSoon": 0},
    "run codes": {"RunFailed": 0, "ProviderFailed": 0, "Remedy": 0},
}
# Notices that only the terminal client shows.
TERMINAL_NOTICES = frozenset({"approval", "cancel", "help", "input", "reconnect", "unreadable"})
IN_A_TABLE = {"http codes": {"http_error", "not_found", "method_not_allowed"}}  # routes.protocol.refusals.HTTP_CODES


def codes_in(source: Source, calls: dict[str, int]) -> Iterator[str]:
    """The codes that calls in this file give, spelled out or by a constant of the module."""
    for node in ast.walk(source.tree):
        match node:
            case ast.Call(func=ast.Name(id=name), args=[*args]) if name in calls and len(args) > calls[name]:
                for inner in ast.walk(args[calls[name]]):
                    if isinstance(inner, ast.Constant) and isinstance(inner.value, str):
                        yield inner.value
                    elif isinstance(inner, ast.Name):
                        module = importlib.import_module(source.module)
                        value = getattr(module, inner.id, None)
                        yield from [value] if isinstance(value, str) else []


def described_codes(name: str) -> set[str]:
    """The codes in the first column of a table between two marks."""
    page = next(text for text in documents().values() if f"<!-- checked: {name} -->" in text)
    table = page.partition(f"<!-- checked: {name} -->")[2].partition(f"<!-- end of {name} -->")[0]
    return {code for row in re.findall(r"^\| ([^|]+) \|", table, re.MULTILINE) for code in re.findall(r"`(\w+)`", row)}


@pytest.mark.parametrize("name", CODES)
def test_every_code_is_described(name: str) -> None:
    in_product = [one for one in sources() if one.path.startswith(("app/", "tools/", "routes/"))]
    found = {code for one in in_product for code in codes_in(one, CODES[name])} - TERMINAL_NOTICES
    found |= IN_A_TABLE.get(name, set())
    assert len(found) > 10
    described = described_codes(name)
    nothing(sorted(found - described), because=f"docs/ does not describe these {name}:")
    nothing(sorted(described - found), because=f"docs/ describes {name} that the code does not have:")


def test_the_documents_name_tests_that_exist() -> None:
    there = {function.name for source in sources() for function in functions(source.tree)}
    for path in ("SECURITY.md", "docs/errors.md"):
        named = set(re.findall(r"`(test_\w+)`", documents()[path]))
        assert len(named) > 10
        nothing(sorted(named - there), because=f"{path} names these tests, which are not there:")


# Verbs of speech and indefinite persons name no agent: write "the model receives", "the principal", "another account".
VAGUE = re.compile(r"\b(told|said|heard|whoever|nobody|somebody|anybody|everybody|strangers?)\b", re.IGNORECASE)


@pytest.mark.parametrize("path", documents())
def test_prose_is_plain(path: str) -> None:
    """What is derived from the code follows the code."""
    prose = re.sub(r"<!-- generated: .*?<!-- end of ", "", documents()[path], flags=re.DOTALL)
    prose = re.sub(r"`[^`\n]*`", "", CODE_BLOCK.sub("", prose))
    nothing([line for line in prose.splitlines() if VAGUE.search(line)], because=f"Name the agent in {path}:")
