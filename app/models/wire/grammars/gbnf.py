"""GBNF for replies with calls in the form that the prompt teaches: text in between, calls as their schemas want them.

llama.cpp applies the grammar of a chat completion from the first token on: its lazy triggers are for its own templates.
So the text is part of the grammar, as an automaton that reaches a call with an opener at the start of a line.
https://github.com/ggml-org/llama.cpp/blob/master/tools/server/server-common.cpp
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from app.core.provider import CallForm
from app.models.wire.grammars.schema_rules import GrammarTooLarge, Rules, arguments_rule, character, literal
from parsing.fences import text_parameters
from tools.tool import Tool

OPENER, CLOSER = "<tool_call>", "</tool_call>"
FENCE, FENCE_END = "```", "\n```"
CALL_END = f"}}\n{CLOSER}"
BLANKS = r"[ \t]{0,8}"
BEGUN = r"[^ \t\r\n{`]"  # the first character of plain text: neither JSON nor the end of a fence


def gbnf_of(
    form: CallForm, tools: Sequence[Tool], *, required: bool = False, several: bool = True, closes_thought: str = ""
) -> str | None:
    """Return the grammar of a reply; None if it is larger than a server should have to read.

    `required`: it begins with a call. `several`: more may follow. `closes_thought`: what ends the thought in which the
    reply begins.
    """
    rules = Rules()
    try:
        start = _reply(rules, form, tools, several=several, required=required)
        if closes_thought and required:
            start = text_until(rules, {closes_thought: f"ws ({start})"})
    except GrammarTooLarge:
        return None
    return f"root ::= {start}\n{rules}"


def _reply(rules: Rules, form: CallForm, tools: Sequence[Tool], *, several: bool, required: bool) -> str:
    end = rules.reserve()
    calls = _fenced(rules, tools, end) if form is CallForm.FENCED else {OPENER: _tagged(rules, tools, end)}
    text = text_until(rules, {f"\n{opener}": call for opener, call in calls.items()}, ends=True, after="\n")
    rules.add(f'{BLANKS} ("\\n" {text})?' if several else '"\\n"?', end)
    return " | ".join(f"{literal(opener)} {call}" for opener, call in calls.items()) if required else text


def _tagged(rules: Rules, tools: Sequence[Tool], end: str) -> str:
    """Return the rule for what follows the opener: JSON as the prompt writes it."""
    calls = (f"{literal(call_begin(tool))} {arguments_rule(rules, tool.parameters)}" for tool in tools)
    one_of = rules.add(" | ".join(calls))
    return rules.add(f"{one_of} {literal(CALL_END)} {end}")


def call_begin(tool: Tool) -> str:
    """Return the text of a call between the opener and its arguments."""
    return f'\n{{"name": {json.dumps(tool.name)}, "arguments": '


def _fenced(rules: Rules, tools: Sequence[Tool], end: str) -> dict[str, str]:
    """Return the rules for the bodies of fences, by openers: plain text, as `parsing.fences` reads it, or JSON."""
    closers = {f"\n{' ' * indent}{FENCE}": end for indent in range(4)}
    text, line = text_until(rules, closers), text_until(rules, closers, after="\n")
    found = dict[str, str]()
    for tool in tools:
        body = f"{arguments_rule(rules, tool.parameters)} {literal(FENCE_END)} {end}"
        if len(texts := text_parameters(tool.parameters)) == 1:
            body = rf"{BEGUN} {text} | {body}"
        elif texts:
            lines = " ".join([rf'{BEGUN} [^\n]* "\n"'] * (len(texts) - 1))
            body = rf'{lines} ([^`\n] {text} | "\n" {line}) | {body}'
        found[f"{FENCE}{tool.name}\n"] = rules.add(body)
    return found


def text_until(rules: Rules, words: Mapping[str, str], *, ends: bool = False, after: str = "") -> str:
    """Return the rule of text up to the first of the words, and of what then follows that word.

    `ends`: it may end without one. `after` is the text in front, in which a word may have begun. The rules are the
    states of the automaton of Aho and Corasick.
    """
    known = {"": rules.reserve()} | {word[:size]: rules.reserve() for word in words for size in range(1, len(word))}
    following: dict[str, list[str]] = {}
    for way in (*known, *words):
        following.setdefault(way[:-1], []).append(way)
    steps: dict[str, dict[str, str]] = {}  # by state and character, to the states that are not the first

    def longest(text: str) -> str:
        """Return the longest end of this text that begins a word."""
        while text not in known:
            text = text[1:]
        return text

    for state in sorted(known, key=len):
        steps[state] = dict(steps[longest(state[1:])]) if state else {}
        steps[state] |= {way[-1]: way for way in following[state] if way}
    for state, name in known.items():
        ways = [f"{literal(one)} {words.get(to) or known[to]}" for one, to in steps[state].items()]
        others = f"[^{''.join(map(character, steps[state]))}] {known['']}"
        rules.add(" | ".join([*(['""'] if ends else []), *ways, others]), name)
    return known[longest(after)]
