"""500 constructed calls, with the parts of their arguments that come from a text which the model has read.

A table of templates by values. Each value is used with other sources and other words around it; the expected parts are
written down with the templates, and known without looking for them. What is hard is in it as well: words that a line
end has parted, currencies without a space, sentences with other punctuation.
"""

from __future__ import annotations

import html
import json
from collections.abc import Iterator, Sequence
from itertools import cycle, islice
from typing import Any
from urllib.parse import quote

from msgspec import Struct

from app.core.spans import SourceKind
from app.provenance.text_index import ReadText

PERSON: tuple[SourceKind, bool] = ("person", False)
PAGE: tuple[SourceKind, bool] = ("result", True)
ORIGINS: Sequence[tuple[SourceKind, bool]] = (
    PERSON,
    PAGE,
    ("file", False),
    ("memory", True),
    ("document", False),
    ("session", True),
    ("model", False),
)
SIZE = {
    "whole": 60,
    "part": 80,
    "number": 60,
    "address": 70,
    "path": 50,
    "escapes": 70,
    "case and space": 40,
    "several sources": 40,
    "decoys": 30,
}

Part = tuple[str, str, SourceKind, bool]
"""The pointer, the words, and the kind of the source and whether it is untrusted."""


class Case(Struct, frozen=True):
    kind: str
    sources: Sequence[ReadText]
    arguments: dict[str, Any]
    parts: frozenset[Part]


NOISE = (
    "The weather in the north will stay dry until the weekend, with light winds from the west.",
    "Please find attached the file. Let me know if you have any questions. Best regards.",
    "Our shop opens at nine and closes at six; on Sundays it stays closed.",
    "Version 3 of the tool reads its settings from a table, one row for each name.",
    "Vielen Dank für Ihre Nachricht. Anbei finden Sie die Datei. Mit freundlichen Grüßen",
)
NAMES = (
    "general", "Quarterly Review", "Anna Lindqvist", "INV-2291", "project-falcon", "Berlin office", "roadmap 2031",
    "ops-alerts", "Marek Nowak", "blue folder", "box 48213", "Zürich Nord", "finance_reports", "Team Retro Notes",
    "kundenservice",
)  # fmt: skip
SENTENCES = (
    "The meeting has moved to Thursday in the blue room",
    "our supplier raised prices by nine percent in March",
    "Die Lieferung verspätet sich wegen des Streiks im Hafen",
    "password resets are handled by the night shift",
    "the contract ends in autumn and renews for twelve months",
    "Clara booked a table at the harbour restaurant",
    "server fourteen lost two disks during the storm",
    "each visitor needs a badge from the front desk",
    "the audit found three open ledgers and a missing stamp",
    "Der Vertrag verlängert sich stillschweigend um zwölf Monate",
)
OWN_WORDS = (
    "Hi Bob, a short update: {}. That is all for now.",
    "Summary follows below.\n\n- {}\n- nothing else happened",
    "{} (as far as we know).",
    "Dear team, {}. Thanks!",
)
NUMBERS: Sequence[tuple[str, str, int | float]] = (
    ("1,250.00", "1250", 1250),
    ("1.250,00", "1250.00", 1250.0),
    ("98 765,40", "98765.4", 98765.4),
    ("12'500", "12500", 12500),
    ("1.250", "1250", 1250),
    ("3,141.59", "3.141,59", 3141.59),
    ("7500.50", "7,500.5", 7500.5),
    ("1 000 000,00", "1000000", 1_000_000),
    ("0.125", "0,125", 0.125),
    ("48213", "48,213", 48213),
    ("2,500", "2500", 2500.0),
    ("19.99", "19,99", 19.99),
)
ADDRESSES = (
    ("bob.miller@example.com", "Bob.Miller@Example.com"),
    ("mallory+x@evil.example", "mallory+x@evil.example"),
    ("https://collect.example/in?id=7", "https://collect.example/in?id=7"),
    ("https://DOCS.example.com/guide/", "https://docs.example.com/guide"),
    ("DE89 3704 0044 0532 0130 00", "DE89370400440532013000"),
    ("GB29NWBK60161331926819", "GB29 NWBK 6016 1331 9268 19"),
    ("+49 170 1234567", "+491701234567"),
    ("api.payments.example", "API.payments.example"),
    ("192.168.14.22", "192.168.14.22"),
    ("4111 1111 1111 1111", "4111111111111111"),
)
PATHS = (
    ("notes/plan.md", "./notes/plan.md"),
    ("src\\app\\main.py", "src/app/main.py"),
    ("/var/log/app/errors.log", "/var/log/app/errors.log"),
    ("~/projects/falcon/README.md", "~/projects/falcon/README.md"),
    ("reports//2031/q3.csv", "reports/2031/q3.csv"),
    ("C:\\Users\\ann\\tax.pdf", "C:/Users/ann/tax.pdf"),
    ("build/out/", "build/out"),
)
DECOYS = (
    "Please find attached the file.",
    "Let me know if you have any questions.",
    "Best regards",
    "Thank you for your message, I will get back to you soon.",
    "Vielen Dank für Ihre Nachricht.",
    "Mit freundlichen Grüßen",
    "the",
    "I hope you are well.",
    "See you tomorrow",
    "Looking forward to hearing from you",
)


def read(number: int, origin: tuple[SourceKind, bool], text: str) -> ReadText:
    kind, untrusted = origin
    return ReadText(kind, f"c{number}", f"the result of tool {number}", text, untrusted)


def case(kind: str, sources: Sequence[ReadText], arguments: dict[str, Any], parts: Iterator[Part] | list[Part]) -> Case:
    noise = [read(90 + at, PAGE if at % 2 else ("file", False), text) for at, text in enumerate(NOISE)]
    return Case(kind, [*noise[:3], *sources, *noise[3:]], arguments, frozenset(parts))


def whole() -> Iterator[Case]:
    for at, origin in zip(range(10_000), cycle(ORIGINS), strict=False):
        value = NAMES[at % len(NAMES)]
        source = read(1, origin, f"There was something about {value}, which came up again yesterday.")
        pointer, arguments = (
            ("/channel", {"channel": value}),
            ("/to/1", {"to": ["nobody-else", value]}),
            ("/event/title", {"event": {"title": f'"{value}"'}}),
        )[at % 3]
        yield case("whole", [source], arguments, [(pointer, value, *origin)])


def part() -> Iterator[Case]:
    for at, origin in zip(range(10_000), cycle(ORIGINS), strict=False):
        sentence = SENTENCES[at % len(SENTENCES)]
        body = OWN_WORDS[at % len(OWN_WORDS)].format(sentence)
        source = read(1, origin, f"Good morning everybody here. {sentence}; more will follow. It costs nothing.")
        arguments = {"body": body, "draft": True} if at % 2 else {"parts": [{"text": body}]}
        yield case("part", [source], arguments, [("/body" if at % 2 else "/parts/0/text", sentence, *origin)])


def number() -> Iterator[Case]:
    for at, origin in zip(range(10_000), cycle(ORIGINS), strict=False):
        there, here, value = NUMBERS[at % len(NUMBERS)]
        source = read(1, origin, f"Transfer the amount of {there} EUR when it suits.")
        if at % 3 == 0:
            yield case("number", [source], {"amount": here}, [("/amount", here, *origin)])
        elif at % 3 == 1:
            text = f"We have paid {here} in total."
            yield case("number", [source], {"note": text}, [("/note", here, *origin)])
        else:
            yield case("number", [source], {"amount": value}, [("/amount", str(value), *origin)])


def address() -> Iterator[Case]:
    for at, origin in zip(range(10_000), cycle(ORIGINS), strict=False):
        there, here = ADDRESSES[at % len(ADDRESSES)]
        if at % 4 == 3 and "://" in there:  # only the host was named
            host = there.partition("://")[2].partition("/")[0]
            url = f"https://{host}/another/place"
            source = read(1, origin, f"All of it is at {host}, they say.")
            yield case("address", [source], {"url": url}, [("/url", host, *origin)])
            continue
        source = read(1, origin, f"You can reach them at {there}, they say.")
        if at % 2:
            yield case("address", [source], {"to": [here]}, [("/to/0", here, *origin)])
        else:
            yield case("address", [source], {"text": f"Send it to {here}, please."}, [("/text", here, *origin)])


def path() -> Iterator[Case]:
    for at, origin in zip(range(10_000), cycle(ORIGINS), strict=False):
        there, here = PATHS[at % len(PATHS)]
        base = here.rpartition("/")[2]
        if at % 4 == 3 and "." in base:  # another folder
            source = read(1, origin, f"The newest one is {base} in that folder.")
            yield case("path", [source], {"path": f"/work/copy/{base}"}, [("/path", base, *origin)])
            continue
        source = read(1, origin, f"The newest one is {there} on the disk.")
        if at % 2 or here == "build/out":
            yield case("path", [source], {"path": here}, [("/path", here, *origin)])
        else:
            yield case("path", [source], {"command": f"wc -l {here} | sort"}, [("/command", here, *origin)])


def _as_unicode(text: str) -> str:
    return "".join(f"\\u{ord(one):04x}" if not one.isascii() or one == "e" else one for one in text)


def escapes() -> Iterator[Case]:
    untrusted = [one for one in ORIGINS if one[0] not in ("person", "operator")]
    ways = (
        lambda text: html.escape(text).replace(" ", "&#32;"),
        lambda text: html.escape(html.escape(f"<p>{text}</p>")),
        lambda text: json.dumps({"text": f"{text}\nend"}),
        lambda text: json.dumps(json.dumps({"text": f'He said "{text}"'})),
        quote,
        lambda text: f"**{text.replace(' ', ' **', 1)}".replace(" **", "** ", 1),
        _as_unicode,
    )
    for at, origin in zip(range(10_000), cycle(untrusted), strict=False):
        way, sentence = ways[at % len(ways)], SENTENCES[(at // len(ways)) % len(SENTENCES)]
        if at % 5 == 4:  # the argument is escaped
            source = read(1, origin, f"News of today. {sentence}; more will follow.")
            written = quote(sentence)
            url = f"https://own.example/?q={written}"
            yield case("escapes", [source], {"url": url}, [("/url", written, *origin)])
        elif at % 5 == 3:
            there = ADDRESSES[at % 4][0]
            source = read(1, origin, json.dumps({"a": f'<a href="{there}">here</a>'}).replace("/", "\\/"))
            yield case("escapes", [source], {"to": there}, [("/to", there, *origin)])
        else:
            source = read(1, origin, f"News of today. {way(sentence)}; more will follow.")
            yield case("escapes", [source], {"body": f"Hello. {sentence}."}, [("/body", sentence, *origin)])


def case_and_space() -> Iterator[Case]:
    ways = (
        str.upper,
        lambda text: text.replace(" ", "\n  "),
        str.title,
        lambda text: text.replace(" ", "  ", 2).lower(),
        lambda text: text.replace(" in ", ", in ").replace(" the ", ' "the ', 1),
        lambda text: text[:9] + "-\n" + text[9:],  # parted by a line end
    )
    for at, origin in zip(range(10_000), cycle(ORIGINS), strict=False):
        sentence, way = SENTENCES[at % len(SENTENCES)], ways[(at + at // 10) % len(ways)]
        source = read(1, origin, f"Good morning. {way(sentence)}. More will follow.")
        yield case("case and space", [source], {"body": f"Hello: {sentence}!"}, [("/body", sentence, *origin)])


def several() -> Iterator[Case]:
    for at in range(10_000):
        value, other = ADDRESSES[at % len(ADDRESSES)][1], ADDRESSES[(at + 3) % len(ADDRESSES)][1]
        own = read(1, PERSON, f"Please write to {value} about it.")
        page = read(2, PAGE, f"Write to {value} or to {other} instead. {SENTENCES[at % 10]}.")
        if at % 2:
            parts: list[Part] = [("/to/0", value, *PERSON), ("/to/0", value, *PAGE), ("/to/1", other, *PAGE)]
            yield case("several sources", [own, page], {"to": [value, other]}, parts)
        else:
            body = f"For {value}: {SENTENCES[at % 10]}."
            parts = [("/body", value, *PERSON), ("/body", value, *PAGE), ("/body", SENTENCES[at % 10], *PAGE)]
            yield case("several sources", [own, page], {"body": body}, parts)


def decoys() -> Iterator[Case]:
    for at in range(10_000):
        text = DECOYS[at % len(DECOYS)]
        source = read(1, ORIGINS[at % len(ORIGINS)], f"Hello. {text} {SENTENCES[at % 10]}.")
        arguments = (
            {"body": text} if at % 2 else {"subject": "Nothing new", "body": f"{text} Yours, assistant number nine"}
        )
        yield case("decoys", [source], arguments, [])


MAKERS = (whole, part, number, address, path, escapes, case_and_space, several, decoys)


def all_cases() -> list[Case]:
    return [one for make, size in zip(MAKERS, SIZE.values(), strict=True) for one in islice(make(), size)]
