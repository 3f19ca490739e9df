"""The facts of a call's arguments that rules are about: texts that may be paths or hosts, and what commands it runs."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping

from msgspec import Struct

from parsing import Arguments
from tools.base.patterns import lazy_pattern
from tools.base.rights import Risk
from tools.shell_policy.command_facts import CommandFacts, facts_of
from tools.tool import Tool
from tools.web.egress import NETWORK, hosts_wanted

MOST_TEXTS = 2_000
MOST_TEXT = 50_000  # characters of one that is searched
_LITERAL = lazy_pattern(r"\"\"\"(.*?)\"\"\"|'''(.*?)'''|\"((?:[^\"\\\n]|\\.)*)\"|'((?:[^'\\\n]|\\.)*)'", re.DOTALL)
_RUNS = lazy_pattern(r"(?i)cmd|commands?|command_?line|script|shell|exec|run|argv|bash|powershell")
_CODE = lazy_pattern(r"(?i)code|source|program|expression|query_?code|javascript|python")
UNREAD_CODE = "the code of a program cannot be read as paths, hosts or commands"
NOTHING = CommandFacts()


class Reads(Struct, frozen=True):
    """The arguments of a built-in tool, by their meaning; those that are not named are data."""

    shell: Collection[str] = ()
    code: Collection[str] = ()
    paths: Collection[str] = ()
    hosts: Collection[str] = ()


DATA = Reads()
# Arguments of a built-in tool that is not here are searched as those of MCP servers are.
BUILT_IN: Mapping[str, Reads] = {
    "bash": Reads(shell=("command",)),
    "python": Reads(code=("code",)),
    "read_file": Reads(paths=("path",)),
    "write_file": Reads(paths=("path",)),
    "edit_file": Reads(paths=("path",)),
    "list_files": Reads(paths=("path", "pattern")),
    "search_files": Reads(paths=("folder",)),
    "web_fetch": Reads(hosts=("url",)),
    **dict.fromkeys(("job_status", "job_output", "job_cancel", "recall_history", "read_result", "ask_user"), DATA),
    **dict.fromkeys(("update_plan", "submit_plan", "read_skill", "web_search", "delegate", "ask_model"), DATA),
    **dict.fromkeys(("create_document", "update_document", "suggest_edits", "read_document"), DATA),
    **dict.fromkeys(("remember", "recall_memory", "forget", "list_sessions", "read_session"), DATA),
}

OPTIONAL_FOLDERS = {"list_files": "path", "search_files": "folder"}  # arguments; without one it is the workspace


class ArgumentFacts(Struct, frozen=True):
    """`doubted`: why paths and hosts may be named that are not found; `network`: the hosts that the call asks for."""

    paths: frozenset[str]
    hosts: frozenset[str]
    commands: tuple[CommandFacts, ...]
    network: tuple[str, ...]
    doubted: str


def facts_of_call(tool: Tool, arguments: Arguments) -> ArgumentFacts:
    """Return the facts of a call. Total."""
    reads = None if tool.origin or tool.handed else BUILT_IN.get(tool.name)
    if reads is not None and (folder := OPTIONAL_FOLDERS.get(tool.name)):
        arguments = {**arguments, folder: arguments.get(folder) or "."}
    texts = list(_texts(arguments))
    if reads is None:
        texts += [("", name) for name in arguments]
    else:
        texts = [
            (name, text) for name, text in texts if name in {*reads.shell, *reads.code, *reads.paths, *reads.hosts}
        ]
    paths, hosts, commands, doubted = set[str](), set[str](), list[CommandFacts](), ""
    if len(texts) > MOST_TEXTS:
        doubted, texts = "it has too many arguments to be read", texts[:MOST_TEXTS]
    for name, text in texts:
        if _is_shell(name, reads):
            facts = facts_of(text)
            commands.append(facts)
            paths |= facts.words
            hosts |= facts.words
            doubted = doubted or facts.doubted_words
        elif _is_code(name, reads):
            literals = {text for found in _LITERAL.findall(text[:MOST_TEXT]) for text in found if text}
            paths, hosts, doubted = paths | literals, hosts | literals, doubted or UNREAD_CODE
            commands.append(CommandFacts(mentioned=_words_of(literals), doubted_commands=UNREAD_CODE))
        else:
            paths |= {text} if reads is None or name in reads.paths else set()
            hosts |= {text} if reads is None or name in reads.hosts else set()
            if reads is None:
                commands.append(_without_doubt(facts_of(text[:MOST_TEXT])) if _may_run(tool) else NOTHING)
            doubted = doubted or ("an argument is too long to be read" if len(text) > MOST_TEXT else "")
    network = hosts_wanted(arguments) if NETWORK in tool.parameters.get("properties", {}) else ()
    return ArgumentFacts(frozenset(paths), frozenset(hosts), tuple(commands), network, doubted)


def _texts(arguments: Arguments) -> Iterator[tuple[str, str]]:
    """Return all texts of the arguments, keys of inner objects included, each with the name of its argument."""
    waiting: list[tuple[str, object]] = list(arguments.items())
    while waiting:
        name, value = waiting.pop()
        if isinstance(value, str):
            yield name, value
        elif isinstance(value, dict):
            waiting += [(str(key), one) for key, one in value.items()]
            waiting += [(name, str(key)) for key in value]
        elif isinstance(value, list):
            waiting += [(name, one) for one in value]
            if value and all(isinstance(one, str) for one in value):
                yield name, " ".join(map(str, value))  # an argv


def _is_shell(name: str, reads: Reads | None) -> bool:
    return _RUNS.fullmatch(name) is not None if reads is None else name in reads.shell


def _is_code(name: str, reads: Reads | None) -> bool:
    return _CODE.fullmatch(name) is not None if reads is None else name in reads.code


def _may_run(tool: Tool) -> bool:
    return tool.handed or tool.risk in (Risk.EXECUTE, Risk.ADMIN)


def _words_of(texts: Collection[str]) -> frozenset[str]:
    return frozenset(word for text in texts for word in re.findall(r"[\w.+-]+", text))


def _without_doubt(facts: CommandFacts) -> CommandFacts:
    """Return the facts of a text that is a command perhaps: that it cannot be read means nothing."""
    return CommandFacts(facts.commands, frozenset(), facts.words)
