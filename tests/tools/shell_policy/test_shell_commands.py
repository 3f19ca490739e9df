"""What the reading of shell commands understands, what it doubts, and that real bash agrees with what it understood."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests import ROOT
from tests.support.sandbox.shells import heard, marked, needs_box
from tools.shell_policy.plain_commands import DEFAULT_COMMANDS, MAX_LENGTH, Doubt, allowed, refusal, simple_commands

SHELL = ROOT / "fixtures" / "shell"
GENEROUS = ("ls *", "cat *", "git status *", "git log *", "grep *", "echo *", "find *", "make test")
LISTS = {"default": DEFAULT_COMMANDS, "generous": GENEROUS, "both": (*DEFAULT_COMMANDS, *GENEROUS)}


def rows(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (SHELL / f"{name}.jsonl").read_text().splitlines()]


PLAIN = rows("plain")
BYPASSES = rows("bypasses")


@pytest.mark.parametrize("row", PLAIN, ids=lambda row: row["text"])
def test_plain_commands_are_understood(row: dict[str, Any]) -> None:
    assert simple_commands(row["text"]) == tuple(map(tuple, row["commands"]))


@pytest.mark.parametrize("listed", LISTS)
@pytest.mark.parametrize("tries", sorted({row["tries"] for row in BYPASSES}))
def test_no_bypass_is_allowed(tries: str, listed: str) -> None:
    texts = [row["text"] for row in BYPASSES if row["tries"] == tries]
    assert [text for text in texts if allowed(text, LISTS[listed])] == []


def test_the_bypasses_are_many_and_each_is_there_once() -> None:
    texts = [row["text"] for row in BYPASSES]
    assert len(texts) == len(set(texts)) >= 900
    assert len({row["tries"] for row in BYPASSES}) >= 40


def test_a_simpler_reading_falls_for_the_bypasses() -> None:
    def first_word_is_listed(text: str) -> bool:
        try:
            words = shlex.split(text, comments=True)
        except ValueError:
            return False
        return bool(words) and words[0] in {pattern.split()[0] for pattern in LISTS["both"]}

    assert sum(first_word_is_listed(row["text"]) for row in BYPASSES) >= 300


@needs_box
def test_the_bypasses_are_real() -> None:
    """Most of those that try to run `pwn` do run it, in this bash. Every third is tried: they take a while."""
    # The long ones are thousands of processes.
    texts = [row["text"] for row in BYPASSES if "pwn" in row["text"] and len(row["text"]) < 200]
    tried = [text for text in texts if "\0" not in text and not re.search("[\ud800-\udfff]", text)][::3]
    assert len(marked(tried)) > len(tried) / 2


@pytest.mark.parametrize(
    "text",
    [
        *("ls", "ls -la | cat -n", "cat 'a b' && echo done", "git status", "git status --short; git log -p --stat"),
        *("git log '--format=%h %s' -n 5", "find . -name '*.py' -newer a -print | grep -v test", "make test"),
        *("grep -rn 'a|b; $(x)' src # no command", "echo '`pwn`' \"> f\" && ls\n\n\nls"),
    ],
)
def test_what_is_listed_is_allowed(text: str) -> None:
    assert allowed(text, GENEROUS)


@pytest.mark.parametrize("pattern", DEFAULT_COMMANDS)
def test_the_default_commands_can_match(pattern: str) -> None:
    assert refusal(pattern) is None
    command = pattern.removesuffix("*")
    assert allowed(command, DEFAULT_COMMANDS)
    assert allowed(f"{command} -a '*' b", DEFAULT_COMMANDS) == pattern.endswith("*")


@pytest.mark.parametrize(
    ("pattern", "texts", "not_these"),
    [
        ("ls", ["ls", " ls # now"], ["ls -l", "lsx", "ls ''"]),
        ("ls *", ["ls", "ls -l", "ls 'a b' c"], ["lsx", "./ls", "cat"]),
        ("git log --oneline", ["git log --oneline", "git  'log' \"--oneline\""], ["git log", "git log --oneline -n 5"]),
        ("git log --oneline *", ["git log --oneline -n 5"], ["git log", "git log -n 5 --oneline"]),
        ("grep 'a b' *", ["grep 'a b' f", 'grep "a b"'], ["grep a b", "grep 'a  b'"]),
        ("find . -exec wc -l '{}' ';'", ["find . -exec wc -l '{}' ';'"], ["find . -exec wc -c '{}' ';'", "find ."]),
        ("env ls", ["env ls"], ["env", "env ls -l", "env cat"]),
        ("python3 -m pytest", ["python3 -m pytest"], ["python3 -m pytest x", "python3"]),
    ],
)
def test_a_pattern_matches_whole_words(pattern: str, texts: list[str], not_these: list[str]) -> None:
    assert refusal(pattern) is None
    assert [text for text in texts if not allowed(text, [pattern])] == []
    assert [text for text in not_these if allowed(text, [pattern])] == []


@pytest.mark.parametrize(
    ("pattern", "because"),
    [
        *(("", "not one command"), ("*", "not understood"), (" *", "not one command"), ("ls*", "not understood")),
        *(("ls; cat *", "not one command"), ("ls # *", "not one command"), ("ls\n*", "not understood")),
        *(("l's' *", "plain name"), ("X=1 ls *", "plain name"), ("echo $x *", "an expansion"), ("time *", "language")),
        *(
            ("git *", "too wide"),
            ("git -c a=b log *", "too wide"),
            ("git commit *", "too wide"),
            ("nice *", "too wide"),
        ),
        *(("find . -exec ls *", "too wide"), ("/usr/bin/python3.11 *", "too wide"), ("gsed *", "too wide")),
        *(("make test *", "too wide"), (". *", "too wide"), ("sh *", "too wide"), ("vim.basic *", "too wide")),
        *(("/lib64/ld-linux-x86-64.so.2 *", "too wide"), ("sort -o f *", "too wide"), ("perl5.36-x86 *", "too wide")),
    ],
)
def test_what_no_pattern_may_be(pattern: str, because: str) -> None:
    reason = refusal(pattern)
    assert reason is not None and because in reason
    assert not allowed(pattern, [pattern])
    assert not allowed(pattern.removesuffix("*"), [pattern])


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("echo $x", "an expansion"),
        ("ls > f", "a redirect"),
        ("ls & ls", "in the background"),
        ('echo "$x"', "with an expansion or an escape in it"),
        ('echo "`x`"', "with an expansion or an escape in it"),
        ("echo a#b", "either a comment or not"),
        ("ls | export x", "'export' is a word of the shell's own language"),
        ("echo -n ==", "two ways of reading it do not agree"),  # the grammar sees a comparison, and an error
        ("echo 'a", "never closed"),
        ("ls; ; ls", "no command before the ';' at 4"),
        ("ls &&", "the last command is missing"),
        ("if ls", "'if' is a word of the shell's own language"),
        ("A=1 ls", "'A=1' is not the plain name of a command"),
        ("ls\r", "U+000D is not a plain character"),
        ("echo ü", "U+00FC is not a plain character"),
        ("echo " + "a" * MAX_LENGTH, "longer than 10000 characters"),
    ],
)
def test_a_doubt_says_what_is_in_doubt(text: str, reason: str) -> None:
    doubt = simple_commands(text)
    assert isinstance(doubt, Doubt) and reason in doubt.reason


@pytest.mark.parametrize("joint", ["; ", " && ", " | ", "\n", " ''", " \"\"'a'", " #", "\n#", " -"])
def test_long_and_deep_texts_are_read(joint: str) -> None:
    text = joint.join(["ls"] * (MAX_LENGTH // (len(joint) + 2)))
    assert allowed(text, ["ls *"])


@settings(max_examples=300, deadline=None)
@given(st.text() | st.text(alphabet="ls echo'\"\\;|&\n#$()`{}<>=\0\r~*!-[]", max_size=60), st.text(max_size=20))
def test_nothing_is_too_strange_to_be_read(text: str, pattern: str) -> None:
    assert isinstance(simple_commands(text), tuple | Doubt)
    assert isinstance(refusal(pattern), str | None)
    assert allowed(text, [pattern, "ls *"]) in (True, False)


NAMES = ("ls", "echo", "x", "a.b", "2a", "eval", "test", "let", "if", "time", "in", "function", "coproc", "'ls'", "a=b")
PIECES = (
    *(
        "a",
        "b",
        "HEAD~2",
        "12",
        "0",
        "2a",
        "-",
        "-n",
        "--x=y",
        ".",
        ",",
        ":",
        "%",
        "@",
        "^",
        "+",
        "=",
        "a=b",
        "#",
        "EOF",
        "then",
    ),
    *(
        "'a b'",
        '"a b"',
        "''",
        '""',
        "'\n'",
        '"\n"',
        "'\\'",
        '"\\a"',
        '"\\""',
        '"\\\\"',
        "'\"'",
        '"\'"',
        "'#'",
        '"#"',
        "'$x'",
    ),
    *("if", "do", "time", "declare", "'", "\\"),
)
BLANKS = (" ", " ", "  ", "\t", " \t ")
JOINTS = (
    "\n",
    " \n\n",
    ";",
    " ; ",
    "&&",
    " && ",
    " &&\n",
    "||",
    "|",
    " | ",
    "|\n#\n",
    " # c\n",
    ";#'\n",
    "\n# `d\n \n",
    " #\\\n",
    ";;",
)
WORDS = st.lists(st.sampled_from(PIECES), min_size=1, max_size=3).map("".join)
ARGUMENTS = st.lists(st.tuples(st.sampled_from(BLANKS), WORDS).map("".join), max_size=3).map("".join)
COMMANDS = st.tuples(st.sampled_from(NAMES), ARGUMENTS, st.sampled_from(JOINTS)).map("".join)
TEXTS = st.lists(COMMANDS, min_size=1, max_size=3).map("".join)


def understood(texts: Iterable[str]) -> Iterator[tuple[str, set[tuple[str, ...]]]]:
    for text in texts:
        if not isinstance(commands := simple_commands(text), Doubt):
            yield text, set(commands)


@needs_box
def test_bash_runs_what_was_understood() -> None:
    # Names with a slash are looked for on the disk, where there is nothing.
    read = [
        (text, words)
        for text, words in understood(row["text"] for row in PLAIN)
        if not any("/" in name for name, *_ in words)
    ]
    assert len(read) > 60
    compare(read)


@needs_box
@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(TEXTS, min_size=30, max_size=60))
def test_bash_reads_random_commands_alike(texts: list[str]) -> None:
    compare(list(understood(texts)))


def compare(read: list[tuple[str, set[tuple[str, ...]]]]) -> None:
    ran = heard([text for text, _ in read])
    assert [(text, words, seen) for (text, words), seen in zip(read, ran, strict=True) if words != seen] == []
