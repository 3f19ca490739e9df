"""The facts of a shell text that rules of the operator are about: its commands, and all its words.

Both readers read it, the grammar and the tokens, and a fact is one if either finds it: behind pipes and redirects, in
substitutions, behind programs that start others, in the text of `sh -c`. What neither can know is a doubt, which a rule
has to take for a match.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import PurePosixPath

from msgspec import Struct, field

from tools.base.patterns import lazy_pattern
from tools.shell_policy.command_grammar import UNREAD, read_by_grammar
from tools.shell_policy.indirect_programs import (
    FED,
    KEYWORDS,
    MEANINGS,
    PLAIN,
    SHELLS,
    STARTERS,
    is_interpreter,
    reads_more,
    runs_by_words,
)
from tools.shell_policy.network_needs import ASSIGNMENT, roughly
from tools.shell_policy.plain_commands import Doubt, Words, simple_commands
from tools.shell_policy.read_only_programs import only_reads

MOST_CHARACTERS = 20_000
_DEPTH = 4  # `sh -c` in `sh -c`
_MOST_WORDS = 2_000
_MOST_STARTED = 64  # words behind a program that starts others
_CONTROL = lazy_pattern(r"[\x00-\x08\x0b-\x1f\x7f\ud800-\udfff]")
_EXPANDS = lazy_pattern(r"[$`*?{}~]|\[")
_HIDDEN = lazy_pattern(r"\$\(|`|<\(|>\(|\$\{")
_SYSTEM = frozenset(
    f"{root}/{name}" for root in ("", "/usr", "/usr/local") for name in ("bin", "sbin", "lib", "games", "libexec")
)
_NAMES = lazy_pattern(r"[\w.+-]+")
_OPTION_VALUE = lazy_pattern(r"-\w(?=.)|--?[\w-]+=")
_BLANK = lazy_pattern(r"\s")
_MOVING = lazy_pattern(r"-[a-zA-Z]*[CD].*|--(?:chdir|directory|work-tree|cwd|prefix).*|-execdir|-okdir")
_UPWARDS = lazy_pattern(r"(?:.*[/=:<>@,])?\.\.(?:/.*)?", re.DOTALL)


class CommandFacts(Struct, frozen=True):
    """`mentioned`: names in words of programs that may run them. A doubt says why something could not be read."""

    commands: frozenset[Words] = frozenset()
    mentioned: frozenset[str] = frozenset()
    words: frozenset[str] = frozenset()
    doubted_commands: str = ""
    doubted_words: str = ""


@lru_cache(maxsize=256)
def facts_of(text: str) -> CommandFacts:
    """Return the facts of any text. Total, and bounded: what is too long is a doubt."""
    found = _Collected()
    found.read(text, _DEPTH)
    found.follow_moves()
    return CommandFacts(
        frozenset(found.commands),
        frozenset(found.mentioned),
        frozenset(found.words),
        found.doubted_commands,
        found.doubted_words,
    )


class _Collected(Struct):
    commands: set[Words] = field(default_factory=set)
    mentioned: set[str] = field(default_factory=set)
    words: set[str] = field(default_factory=set)
    doubted_commands: str = ""
    doubted_words: str = ""
    _seen: set[tuple[str, int]] = field(default_factory=set)

    def read(self, text: str, depth: int) -> None:
        if (text, depth) in self._seen or not text.strip():
            return
        self._seen.add((text, depth))
        if depth == 0 or len(text) > MOST_CHARACTERS or len(self.words) > _MOST_WORDS:
            self._doubt("it is too long, or nested too deeply")
            return
        if _CONTROL.search(text):
            self._doubt("it holds control characters")
            text = _CONTROL.sub(" ", text)
        for spelled in dict.fromkeys((text, text.replace("\\\n", ""))):
            self._by_grammar(spelled, depth)
            self._by_tokens(spelled, depth)

    def follow_moves(self) -> None:
        """Doubt words that lead upwards from a folder that a command has changed to."""
        moves = any(words[0] in ("cd", "pushd") for words in self.commands) or any(map(_MOVING.fullmatch, self.words))
        if moves and any(map(_UPWARDS.fullmatch, self.words)):
            self.doubted_words = self.doubted_words or "a path leads upwards from another folder"

    def _by_grammar(self, text: str, depth: int) -> None:
        reading = read_by_grammar(text)
        if reading.broken:
            self._doubt("its grammar is broken")
        self._add_words(reading.words)
        for words in reading.commands:
            self._command(words, depth)
        programs = {PurePosixPath(word).name for words in reading.commands for word in words}
        if reading.texts and (programs & (SHELLS | STARTERS) or any(map(is_interpreter, programs))):
            for inner in reading.texts:
                self.read(inner, depth - 1)
        for inner in reading.texts:
            self._add_words(inner.split())

    def _by_tokens(self, text: str, depth: int) -> None:
        plain = simple_commands(text)
        for words in roughly(text) if isinstance(plain, Doubt) else plain:
            self._add_words(words if isinstance(plain, Doubt) else (), marked=False)
            if words:
                self._command(tuple(words) if not isinstance(plain, Doubt) else _marked(words), depth)

    def _add_words(self, words: Iterable[str], *, marked: bool = True) -> None:
        for word in words:
            self.words.add(word)
            if marked and UNREAD in word:
                self.doubted_words = self.doubted_words or "a word is known to the shell alone"
            if _HIDDEN.search(word):
                self._doubt("a word holds a substitution")

    def _command(self, words: Words, depth: int) -> None:
        """Take in a command. Assignments and redirects may stand before its name."""
        while words and (words[0] in KEYWORDS or ASSIGNMENT.match(words[0]) or _is_redirect(words[0])):
            if MEANINGS.fullmatch(words[0]):
                self._doubt("a variable changes what is run")
            words = words[1:]
        if not words:
            return
        self.words.update(word for word in words if UNREAD not in word)
        name, rest = words[0], words[1:]
        program = name.rpartition("/")[2]
        self.commands.add((program, *rest))
        self._doubt_name(name)
        if reads_more(program, rest):
            self.doubted_words = self.doubted_words or f"{program} reads files that no word names"
        if any(map(MEANINGS.fullmatch, rest)):
            self._doubt("a variable changes what is run")
        if program in SHELLS:
            self._shell(rest, depth)
        elif program in STARTERS:
            self._starter(program, rest, depth)
        elif program == "find" and (runs := [at for at, word in enumerate(rest) if word.startswith(("-exec", "-ok"))]):
            for at in runs:
                self._started(rest[at + 1 :] or (UNREAD,), depth)
        elif not only_reads(words) and (is_interpreter(program) or runs_by_words(program, rest)):
            self._doubt(f"{program} can run what cannot be read here")
        if program not in PLAIN and program not in STARTERS and not only_reads((program, *rest)):
            self.mentioned.update(found for word in rest for found in _NAMES.findall(word))
        if program in ("cd", "pushd", "popd") and not any(word[:1] not in ("-", "") for word in rest):
            self.doubted_words = self.doubted_words or f"{program} goes where no word says"

    def _doubt_name(self, name: str) -> None:
        if not name.isascii() or UNREAD in name or (_EXPANDS.search(name) and name not in ("[", "[[")):
            self.doubted_commands = self.doubted_commands or "the name of a command is known to the shell alone"
        elif "/" in name and name.rpartition("/")[0] not in _SYSTEM:
            self.doubted_commands = self.doubted_commands or "it runs a file, whose content is not read"

    def _shell(self, rest: Words, depth: int) -> None:
        """Take in a shell: the texts that it is given, or a doubt about the file or the input that it reads."""
        if not any(re.fullmatch(r"[-+][a-zA-Z]*c[a-zA-Z]*|--command.*", word) for word in rest):
            self._doubt("a shell reads its commands from a file or its input")
        for word in rest:
            if UNREAD in word:
                self._doubt("the text for a shell is known to the shell alone")
            if word[:1] not in ("-", "+"):
                self.read(word.replace(UNREAD, "$_"), depth - 1)

    def _starter(self, program: str, rest: Words, depth: int) -> None:
        """Take in a program that starts another: each word behind it may be the one that is started."""
        if len(rest) > _MOST_STARTED:
            self._doubt("too many words stand behind a program that starts others")
            rest = rest[:_MOST_STARTED]
        if program in FED:
            self.doubted_words = self.doubted_words or f"{program} takes words from its input"
            if program != "xargs" or _may_run_input(rest):
                self.doubted_commands = self.doubted_commands or f"{program} may run what its input says"
        if program == "eval" or program == "trap":
            self.read(" ".join(rest).replace(UNREAD, "$_"), depth - 1)
        if depth <= 1:
            self._doubt("it is nested too deeply")
            return
        for at, word in enumerate(rest):
            if UNREAD in word:
                self.doubted_commands = self.doubted_commands or "the name of a command is known to the shell alone"
            value = _OPTION_VALUE.sub("", word, count=1) if word.startswith("-") else word
            for text in dict.fromkeys((word, value)):
                if _BLANK.search(text) or ";" in text:
                    self.read(text.replace(UNREAD, "$_"), depth - 1)
            if value and not value.startswith("-"):
                self._started((value, *rest[at + 1 :]), depth)

    def _started(self, words: Words, depth: int) -> None:
        if words not in self.commands or words[0].rpartition("/")[2] in SHELLS:
            self._command(words, depth - 1 if words[0].rpartition("/")[2] in STARTERS else depth)

    def _doubt(self, why: str) -> None:
        self.doubted_commands = self.doubted_commands or why
        self.doubted_words = self.doubted_words or why


def _marked(words: Sequence[str]) -> Words:
    """Return rough words with a mark for what the shell would expand: quotes are off, so a literal may be marked."""
    return tuple(UNREAD if "$" in word else word for word in words)


def _is_redirect(word: str) -> bool:
    return re.match(r"\d*[<>&]", word) is not None


def _may_run_input(rest: Words) -> bool:
    names = [word.rpartition("/")[2] for word in rest]
    if any(re.match(r"-[a-zA-Z]*[Ii]|--replace|-J", word) for word in rest):
        return True
    running = STARTERS | SHELLS
    return any(name in running or is_interpreter(name) for name in names)
