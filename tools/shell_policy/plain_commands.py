"""Shell commands plain enough to run without approval: parsed by two parsers, then matched against a list.

The sandbox is the boundary, not this parser: it only decides whether approval is needed. So it understands little on
purpose, plain commands of plain words, and calls everything else a doubt. Two parsers have to agree on every word,
tree-sitter's bash grammar and a short table of tokens: a trick must fool both in the same way. The grammar alone takes
`\\rm` on a line of its own for an argument of the line before, and `time` and `%1` for programs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from functools import cache, lru_cache
from typing import TYPE_CHECKING

from msgspec import Struct

from tools.base.patterns import lazy_pattern
from tools.shell_policy.read_only_programs import only_adds, only_reads

if TYPE_CHECKING:
    from tree_sitter import Language

MAX_LENGTH = 10_000

# Safe with any further literal words, also where there is no sandbox, in Debian's and in busybox's version of each.
# What reads files (cat, wc, grep) is not here, because it would read every file; what changes how later words are
# understood (cd, set, export) is not; nor is git, which runs what the configuration of a repository names.
DEFAULT_COMMANDS: tuple[str, ...] = (
    "true",
    "false",
    "pwd",
    "echo *",  # bash's own: its words are printed, and its options change only the form
    "ls *",  # shows names and dates; no option of it writes or runs anything
    "basename *",  # works on its words alone
    "dirname *",  # as basename
    "uname *",  # options that choose what is printed; no operands
    "whoami",
    "id",
    "date",  # without words: `-s` and an operand set the clock, `-f` reads a file
    "date -u",
    "hostname",  # without words: an operand sets the name, `-F` reads a file
    "nproc",
)

# Outside of quotes: characters that bash takes literally anywhere in a word.
_TOKEN = lazy_pattern(
    r"""(?P<blank>[ \t]+)
    | (?P<comment>(?<![^ \t\n;|&])\#[^\n]*)
    | (?P<join>&&|\|\|?)
    | (?P<end>[;\n])
    | (?P<word>(?:[\w./:=@%+,^-]|(?<=[A-Za-z0-9])~(?=[0-9])|'[^']*'|"(?:[^"$`\\!]|\\[^$`!\n])*")+)""",
    re.ASCII | re.VERBOSE,
)
_UNREADABLE = lazy_pattern(r"[^\t\n -~]")
_NAME = lazy_pattern(r"[\w./:][\w./:+,-]*", re.ASCII)
_KEYWORDS = frozenset(
    (
        *(
            "case",
            "coproc",
            "do",
            "done",
            "elif",
            "else",
            "esac",
            "fi",
            "for",
            "function",
            "if",
            "in",
            "select",
            "then",
        ),
        *("time", "until", "while", "declare", "export", "local", "readonly", "typeset", "unset"),
    )
)
_PIECE = lazy_pattern(r"""'(?P<raw>[^']*)'|"(?P<quoted>(?:[^"\\]|\\.)*)"|(?P<plain>[^'"]+)""", re.DOTALL)
_ESCAPE = lazy_pattern(r'\\(["\\])')

# Every kind of node that a plain command may have in tree-sitter's grammar.
_KINDS = frozenset(
    (
        *("program", "list", "pipeline", "command", "command_name", "comment", "\n", ";", "|", "&&", "||"),
        *("word", "number", "raw_string", "string", "string_content", '"', "concatenation"),
    )
)

_MEANINGS = {
    "$": "an expansion",
    "`": "a substitution",
    "<": "a redirect",
    ">": "a redirect",
    "(": "a subshell or a function",
    ")": "a subshell or a function",
    "{": "a group or a brace expansion",
    "}": "a group or a brace expansion",
    "[": "a test or a file pattern",
    "]": "a test or a file pattern",
    "*": "a file pattern",
    "?": "a file pattern",
    "~": "a home directory",
    "!": "a negation or the history",
    "&": "something in the background",
    "\\": "an escape",
    "#": "either a comment or not",
    "'": "a quote that is never closed",
    '"': "a quote that is never closed, or with an expansion or an escape in it",
}


class Doubt(Struct, frozen=True):
    """The text may do more than its words show. `reason` completes the sentence "It was not understood: ..."."""

    reason: str


Span = tuple[int, int]
Words = tuple[str, ...]


def simple_commands(text: str) -> tuple[Words, ...] | Doubt:
    """The words of each command in order, where the text is nothing but plain commands; else a doubt. Never raises.

    Plain: literal words, quoted or not, in commands that are joined by `;`, a line's end, `&&`, `||` or `|`, with
    comments. Names of commands stand without quotes.
    """
    if len(text) > MAX_LENGTH:
        return Doubt(f"it is longer than {MAX_LENGTH} characters.")
    if unreadable := _UNREADABLE.search(text):
        return Doubt(f"U+{ord(unreadable[0]):04X} is not a plain character.")
    spans = _by_tokens(text)
    if isinstance(spans, Doubt):
        return spans
    for (start, end), *_ in spans:
        name = text[start:end]
        if name in _KEYWORDS:
            return Doubt(f"{name!r} is a word of the shell's own language.")
        if not _NAME.fullmatch(name):
            return Doubt(f"{name!r} is not the plain name of a command.")
    if spans != _by_grammar(text):
        return Doubt("two ways of reading it do not agree.")
    return tuple(tuple(_unquoted(text[start:end]) for start, end in command) for command in spans)


def allowed(text: str, patterns: Iterable[str]) -> bool:
    """Return whether every command in the text matches one of the patterns. Nothing to run is nothing to allow.

    A pattern is a command of literal words; a last word `*` stands for any further words, or none, with which the
    program only reads (read_only_programs). `refusal` explains patterns that cannot match.
    """
    commands = simple_commands(text)
    if isinstance(commands, Doubt):
        return False
    read = [pattern for pattern in map(_read, patterns) if isinstance(pattern, _Pattern)]
    return bool(commands) and all(any(pattern.matches(words) for pattern in read) for words in commands)


def reads(text: str) -> bool:
    """Return whether the text only reads and prints, by both parsers. `cd` may come before it."""
    return _consists_of(text, only_reads)


def loses_nothing(text: str) -> bool:
    """Return whether the text only reads, or adds what can be undone (read_only_programs). For a sandbox."""
    return _consists_of(text, lambda words: only_reads(words) or only_adds(words))


def _consists_of(text: str, fits: Callable[[Words], bool]) -> bool:
    """Return whether there are commands in the text, and each fits or changes the place."""
    commands = simple_commands(text)
    if isinstance(commands, Doubt) or not commands:
        return False
    return all(fits(words) or (words[0] == "cd" and len(words) < 3) for words in commands)


def refusal(pattern: str) -> str | None:
    """Explain why a pattern never matches anything; None when it can."""
    read = _read(pattern)
    return read.reason if isinstance(read, Doubt) else None


class _Pattern(Struct, frozen=True):
    words: Words
    open: bool

    def matches(self, words: Words) -> bool:
        if not self.open:
            return words == self.words
        return words[: len(self.words)] == self.words and only_reads(words)


@lru_cache(maxsize=1024)
def _read(pattern: str) -> _Pattern | Doubt:
    literal = re.sub(r"[ \t]+\*[ \t]*\Z", "", pattern)
    commands = simple_commands(literal)
    if isinstance(commands, Doubt):
        return Doubt(f"The pattern {pattern!r} was not understood: {commands.reason}")
    if not commands or {kind for kind, *_ in _tokens(literal)} - {"word", "blank"}:
        return Doubt(f"The pattern {pattern!r} is not one command: write each command as a pattern of its own.")
    read = _Pattern(commands[0], open=literal != pattern)
    if read.open and not only_reads(read.words):
        return Doubt(
            f"The pattern {pattern!r} is too wide: {literal!r} is not known only to read, and with other words behind "
            "it might run or write anything. Spell out each whole command, without '*'. A '*' can follow programs that "
            "only read: ls, cat, head, wc, find, grep, rg, git status, git diff, git log and the like."
        )
    return read


def _by_tokens(text: str) -> list[list[Span]] | Doubt:
    """Find the words of each command by the table of tokens."""
    commands: list[list[Span]] = []
    words: list[Span] = []
    unfinished = False
    for kind, start, end in _tokens(text):
        match kind:
            case "word":
                words.append((start, end))
                unfinished = False
            case "join" | "end" if words:
                commands.append(words)
                words, unfinished = [], kind == "join"
            case "join" | "end" if text[start] != "\n":
                return Doubt(f"there is no command before the {text[start:end]!r} at {start}.")
            case "doubt":
                return Doubt(f"the {text[start]} at {start} may be {_MEANINGS.get(text[start], 'anything')}.")
    if unfinished:
        return Doubt("the last command is missing.")
    return [*commands, words] if words else commands


def _tokens(text: str) -> Iterator[tuple[str, int, int]]:
    at = 0
    while at < len(text):
        found = _TOKEN.match(text, at)
        if not found:
            yield "doubt", at, at + 1
            return
        yield str(found.lastgroup), at, found.end()
        at = found.end()


def _by_grammar(text: str) -> list[list[Span]] | None:
    """The same by tree-sitter; None where it finds an error, or anything but plain commands."""
    from tree_sitter import Parser  # 13 ms and 3 MB, only when commands are parsed

    root = Parser(bash_language()).parse(text.encode()).root_node
    if root.has_error:
        return None
    commands: list[list[Span]] = []
    waiting = [root]
    while waiting:
        node = waiting.pop()
        if node.type not in _KINDS or node.is_missing:
            return None
        if node.type == "command":
            commands.append([child.byte_range for child in node.children if child.type != "comment"])
        waiting += reversed(node.children)
    return commands


@cache
def bash_language() -> Language:
    import tree_sitter_bash
    from tree_sitter import Language

    return Language(tree_sitter_bash.language())


def _unquoted(word: str) -> str:
    """Remove quotes as bash does, in a word without expansions."""

    def piece(found: re.Match[str]) -> str:
        if found["quoted"] is not None:
            return _ESCAPE.sub(r"\1", found["quoted"])
        return found["raw"] if found["raw"] is not None else found["plain"]

    return _PIECE.sub(piece, word)
