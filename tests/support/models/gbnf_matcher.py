"""A matcher for GBNF as the product writes it: says whether a grammar takes a text."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cache

Ends = frozenset[int]
Match = Callable[[int], Ends]
TOKEN = re.compile(
    r'"(?:\\.|[^"\\])*"|\[(?:\\.|[^\]\\])*\]|\{\d*,?\d*\}|[A-Za-z][\w-]*|[()|*+?]',
)
ESCAPE = re.compile(r"\\(?:x([0-9A-Fa-f]{2})|(.))", re.DOTALL)
CONTROLS = {"n": "\n", "r": "\r", "t": "\t"}


def takes(grammar: str, text: str) -> bool:
    """Return whether the rule `root` takes exactly this text."""
    rules = dict(line.split(" ::= ", 1) for line in grammar.splitlines())

    @cache
    def rule(name: str) -> Match:
        found: list[Match] = []

        @cache
        def match(at: int) -> Ends:
            if not found:
                found.append(alternatives(iter([*TOKEN.findall(rules[name]), ")"])))
            return found[0](at)

        return match

    def alternatives(tokens: Iterator[str]) -> Match:
        options: list[list[Match]] = [[]]
        for token in tokens:
            if token == ")":
                break
            if token == "|":
                options.append([])
            elif token[0] in "*+?{":
                options[-1][-1] = repeated(options[-1][-1], token)
            else:
                options[-1].append(alternatives(tokens) if token == "(" else one(token))
        return lambda at: frozenset().union(*(sequence(option, at) for option in options))

    def one(token: str) -> Match:
        if token[0] == '"':
            word = ESCAPE.sub(unescaped, token[1:-1])
            return lambda at: frozenset({at + len(word)} if text.startswith(word, at) else ())
        if token[0] == "[":
            in_class = re.compile(token, re.DOTALL)
            return lambda at: frozenset({at + 1} if in_class.match(text, at) else ())
        return lambda at: rule(token)(at)

    return len(text) in rule("root")(0)


def unescaped(match: re.Match[str]) -> str:
    return chr(int(match[1], 16)) if match[1] else CONTROLS.get(match[2], match[2])


def sequence(parts: list[Match], at: int) -> Ends:
    ends = frozenset({at})
    for part in parts:
        ends = frozenset().union(*map(part, ends))
    return ends


def repeated(part: Match, mark: str) -> Match:
    bounds = {"*": "0,", "+": "1,", "?": "0,1"}.get(mark, mark[1:-1])
    low, _, high = bounds.partition(",")
    least, most = int(low), int(high) if high else 10**6

    def match(at: int) -> Ends:
        ends: set[int] = {at} if least == 0 else set()
        reached, times = {at}, 0
        while reached and times < most:
            times += 1
            reached = set().union(*map(part, reached)) - (ends if times > least else set())
            ends |= reached if times >= least else set()
        return frozenset(ends)

    return match
