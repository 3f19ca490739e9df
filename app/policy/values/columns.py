"""The columns of a call's arguments: which values choose where something goes or what is changed, and which do not.

An operator's rule or declaration names them, or the row of a built-in tool. Others are guessed by the JSON Schema and
by the words of the name, the last word first. What no word tells is OTHER, which matters as a recipient does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct

from app.policy.patterns import words_of
from parsing import Arguments
from tools.base.patterns import lazy_pattern
from tools.base.rights import Column
from tools.tool import Tool

MOST_LEAVES = 300  # values of a call that are looked at: one with more asks
MOST_DEPTH = 16
LONGEST_ADDRESS = 2_000
PLACES = frozenset((Column.RECIPIENT, Column.ADDRESS, Column.PATH, Column.IDENTIFIER, Column.INSIDE))
_NAMES = {
    Column.RECIPIENT: "to cc bcc recipient recipients receiver receivers addressee addressees email emails mail mails "
    "participant participants attendee attendees invitee invitees guest guests member members user users username "
    "channel channels chat room group groups account accounts iban payee beneficiary phone contact contacts owner "
    "assignee assignees reviewer reviewers hotel restaurant company team project repo repository board list",
    Column.ADDRESS: "address addresses domain domains endpoint host hostname hosts href link links origin server site "
    "uri uris url urls webhook callback website remote branch network",
    Column.PATH: "path paths file files filename filepath filenames folder folders dir directory directories",
    Column.COMMAND: "argv bash cmd cmdline command commandline shell code script sql expression program",
    Column.IDENTIFIER: "id ids uid uuid guid key number no ref sha hash slug from sender issue ticket",
    Column.AMOUNT: "amount amounts price sum total value quantity cost fee",
    Column.CONTENT: "body text message messages content contents subject title description comment comments note notes "
    "summary caption html markdown query q search prompt question details reason location",
    Column.PLAIN: "limit offset page count n sort order format lang language timezone start end date day time "
    "since until month year duration depth width height recurring",
}
_COLUMN_OF = {word: column for column, words in _NAMES.items() for word in words.split()}
_FORMATS = {
    **dict.fromkeys(("email", "idn-email"), Column.RECIPIENT),
    **dict.fromkeys(("uri", "url", "iri", "uri-reference", "hostname", "idn-hostname", "ipv4", "ipv6"), Column.ADDRESS),
    "uuid": Column.IDENTIFIER,
}
# Words of arguments and choices that show something to everybody, or no longer hide it: an option that matters.
_EXPOSING = frozenset(("anonymous", "anyone", "everyone", "private", "public", "visibility"))
_QUERIES = frozenset(("prompt", "q", "query", "question", "search"))
_PLAIN_TEXT = lazy_pattern(r"[\d\s:.,/TZ+-]{0,40}|[A-Za-z]{2}(?:[-_][A-Za-z]{2})?|(?:asc|desc)(?:ending)?")
_ADDRESS = lazy_pattern(
    r"\s*(?:\S+://|//|\\\\|www\.)\S+\s*|\s*(?:mailto:)?\S+@\S+\s*|\s*[\w-]+(?:\.[\w-]+)*\.[^\W\d_]{2,24}\s*"
    r"|\s*(?:~|\.{1,2})?/[^\s/]\S*\s*|\s*[A-Za-z]:[\\/]\S+\s*"  # a path
)


class Value(Struct, frozen=True):
    """One value of a call: `pointer` is its JSON pointer, `name` the argument or key that it stands under.

    Without `column` nothing tells what it is for.
    """

    pointer: str
    name: str
    value: str | int | float
    column: Column | None

    @property
    def matters(self) -> bool:
        return self.column not in (Column.CONTENT, Column.PLAIN, Column.INSIDE)


class TooMany(Exception):
    """The call has more values, or deeper ones, than are looked at."""


def values_of(tool: Tool, arguments: Arguments) -> list[Value]:
    """Return the values of a call with their columns, none of them empty. Raises TooMany."""
    found = list[Value]()
    for value in _walk(tool, arguments, tool.parameters):
        found.append(value)
        if len(found) > MOST_LEAVES:
            raise TooMany
    return sorted(found, key=lambda one: one.pointer)  # the order of arguments makes no difference


def _walk(tool: Tool, arguments: Arguments, schema: Mapping[str, Any]) -> Iterator[Value]:
    waiting: list[tuple[str, str, str, object, Mapping[str, Any]]] = [("", "", "", arguments, schema)]
    while waiting:
        pointer, path, name, value, described = waiting.pop()
        if pointer.count("/") > MOST_DEPTH:
            raise TooMany
        one = _resolved(described, schema)
        if isinstance(value, dict):
            known = one.get("properties")
            known = known if isinstance(known, dict) else {}
            for key, inner in value.items():
                below = f"{path}.{key}" if path else key
                if key not in known and _declared(tool, below) is None:  # the key itself may say something
                    yield Value(f"{pointer}/{key}", name, key, None)
                waiting.append((f"{pointer}/{key}", below, key, inner, _schema(known.get(key))))
        elif isinstance(value, list):
            inner_schema = _schema(one.get("items"))
            waiting += [(f"{pointer}/{at}", path, name, inner, inner_schema) for at, inner in enumerate(value)]
        elif isinstance(value, bool) and _EXPOSING.isdisjoint(words_of(name)):
            continue
        elif isinstance(value, str | int | float) and value != "":
            yield Value(pointer, name, value, _column(tool, path, name, value, one))


def _column(tool: Tool, path: str, name: str, value: str | float, schema: Mapping[str, Any]) -> Column | None:
    if declared := _declared(tool, path):
        return declared
    if isinstance(value, bool) or value in _choices(schema):
        return Column.PLAIN if _EXPOSING.isdisjoint((*words_of(name), *words_of(str(value)))) else None
    guess = _FORMATS.get(str(schema.get("format"))) or column_by_name(name)
    if isinstance(value, str):
        if guess is Column.PLAIN and not _PLAIN_TEXT.fullmatch(value):
            guess = None
        if guess in (Column.PLAIN, Column.CONTENT) and len(value) <= LONGEST_ADDRESS and _ADDRESS.fullmatch(value):
            guess = Column.ADDRESS
    elif guess is Column.CONTENT:
        guess = None
    return guess


def _declared(tool: Tool, path: str) -> Column | None:
    """Return the column that is declared for an argument, or for what it stands in."""
    while path:
        if column := tool.columns.get(path):
            return column
        path = path.rpartition(".")[0]
    return None


def _choices(schema: Mapping[str, Any]) -> list[object]:
    choices = schema.get("enum")
    return choices if isinstance(choices, list) else [schema["const"]] if "const" in schema else []


def _schema(given: object) -> Mapping[str, Any]:
    return given if isinstance(given, dict) else {}


def _resolved(schema: Mapping[str, Any], root: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the part of a schema that describes a value: a reference's target, the alternative that is not null."""
    for _ in range(4):
        reference = schema.get("$ref")
        if isinstance(reference, str) and reference.startswith("#/"):
            found: object = root
            for step in reference[2:].split("/"):
                found = found.get(step) if isinstance(found, dict) else None
            schema = _schema(found)
            continue
        options = next((one for word in ("anyOf", "oneOf") if isinstance(one := schema.get(word), list)), None)
        rest = [one for one in map(_schema, options or ()) if one.get("type") != "null"]
        if len(rest) != 1:
            return schema
        schema = rest[0]
    return schema


def column_by_name(name: str) -> Column | None:
    """Return what the words of an argument's name tell of it, the last word first."""
    return next((_COLUMN_OF[word] for word in reversed(words_of(name)) if word in _COLUMN_OF), None)


def is_query(name: str) -> bool:
    """Return True for an argument that can hold orders, where its tool does not only read."""
    return not _QUERIES.isdisjoint(words_of(name))


def column_without_schema(tool: Tool, path: str, value: str | float) -> Column | None:
    """Return the column of a value by what is declared for its argument, its name and its form."""
    return _column(tool, path, path.rpartition(".")[2], value, {})
