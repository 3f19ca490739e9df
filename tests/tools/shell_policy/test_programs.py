"""Programs that only read: what no pattern with a `*` lets through, and that the real programs agree."""

from __future__ import annotations

import asyncio
import json
import re
import shlex
import shutil
import string
import subprocess
import tempfile
from contextlib import aclosing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import ROOT
from tests.support.nightly import at_night
from tests.support.sandbox.shells import FOUND, TIME_LIMIT_S, needs_box
from tools.base.outcome import Result
from tools.builtin.shell import running
from tools.shell_policy.plain_commands import Doubt, allowed, reads, refusal, simple_commands
from tools.shell_policy.read_only_programs import READERS, only_reads
from tools.tool import Context

SHELL = ROOT / "fixtures" / "shell"
RUNNERS = [json.loads(line)["text"] for line in (SHELL / "runners.jsonl").read_text().splitlines()]
OPTIONS = {  # which make a program that else reads run or write something
    "find": "-exec -execdir -ok -okdir -delete -fprint -fprint0 -fprintf -fls",
    "sort": "-o --output -T --temporary-directory --compress-program",
    "diff": "-l --paginate",
    "file": "-C --compile -z -Z -p --preserve-date --uncompress -m --magic-file -S --no-sandbox",
    "date": "-s --set",
    "hostname": "-F --file -b --boot",
    "sed": "-i --in-place -e --expression -f --file -s --separate",
    "tree": "-o -R",
    "rg": "-z --search-zip --pre --hostname-bin",
    "jq": "-f --from-file -L --run-tests",
    "git log": "--output --ext-diff --textconv --show-signature --remerge-diff -O --help --submodule",
    "git diff": "--output --ext-diff --textconv -O --help --submodule",
    "git show": "--output --ext-diff --textconv --show-signature -O",
    "git grep": "-O --open-files-in-pager --textconv --ext-grep --recurse-submodules",
    "git branch": "-d -D -m -M -c -C -f -u --delete --move --copy --force --edit-description --set-upstream-to",
    "git tag": "-a -s -d -f -m -F -u -v -e --annotate --sign --delete --force --verify",
    "git cat-file": "--textconv --filters --batch",
    "git config --get": "--unset --unset-all --add --edit --replace-all -e",
    "git remote": "--edit",
}


@pytest.mark.parametrize("text", RUNNERS)
def test_what_runs_or_writes_is_behind_no_star(text: str) -> None:
    """However much of the command stands before the `*`; spelled out as a whole it can be allowed."""
    read = simple_commands(text)
    words = shlex.split(text) if isinstance(read, Doubt) else read[0]
    opened = [f"{shlex.join(words[:length])} *" for length in range(1, len(words) + 1)]
    assert [pattern for pattern in opened if allowed(text, [pattern])] == []
    assert not reads(text)
    assert isinstance(read, Doubt) or allowed(text, [text])


def test_there_are_many_of_those_and_few_can_have_a_star_at_all() -> None:
    programs = {text.split()[0] for text in RUNNERS}
    assert len(programs) >= 130 and len(RUNNERS) == len(set(RUNNERS))
    can_have = {name for name in programs if refusal(f"{name} *") is None}
    assert can_have == {"date", "diff", "env", "file", "find", "hostname", "rg", "sed", "sort", "tree", "uniq"}


@pytest.mark.parametrize("program", [text.split()[0] for text in RUNNERS if refusal(f"{text.split()[0]} *")])
def test_a_refusal_says_what_to_do(program: str) -> None:
    assert re.search(r"too wide.*Spell out each whole command|not understood", refusal(f"{program} *") or "")


@pytest.mark.parametrize("name", sorted(OPTIONS))
def test_options_that_run_or_write_are_never_read(name: str) -> None:
    assert reads(name)
    for option in OPTIONS[name].split():
        spelled = [option, f"'{option}'", f"{option} x"]
        if option.startswith("--"):  # a shortened one means the same, unless it is another's whole name
            cut = {option[2:end] for end in range(1, len(option) + 1)} - READERS[name].names - {""}
            spelled += [f"--{given}{value}" for given in cut for value in ("", "=x")]
        elif name != "find":
            spelled += [f"{option}x", f"-{READERS[name].letters[:1]}{option[1:]}"]
        for one in spelled:
            assert not reads(f"{name} {one}"), one
            assert not reads(f"{name} a -- {one} b"), one


@pytest.mark.parametrize("name", sorted(name for name in READERS if READERS[name].words != r"-.*"))
def test_an_option_that_nobody_listed_is_not_read(name: str) -> None:
    reader, words = READERS[name], tuple(name.split())
    for letter in set(string.ascii_letters + string.digits + "?!:,") - set(reader.letters + reader.valued):
        if not re.fullmatch(reader.words, f"-{letter}"):
            assert not only_reads((*words, f"-{letter}"))
        if reader.letters:
            assert not only_reads((*words, f"-{reader.letters[0]}{letter}"))
    for long in reader.names:
        for end in range(1, len(long)):
            assert (long[:end] in reader.names) == only_reads((*words, f"--{long[:end]}"))


@given(st.lists(st.text(alphabet="-abceoxO=%G+ /.*;|", max_size=8), max_size=5))
def test_more_words_never_turn_a_writer_into_a_reader(words: list[str]) -> None:
    for option in ("-o", "--output=f", "--compress-program=x"):
        assert not only_reads(("sort", *words, option, *words))
    for option in ("-exec", "-delete", "-fls"):
        assert not only_reads(("find", *words, option, *words))
    assert not only_reads(("git", "log", *words, "--output", *words))
    assert not only_reads(("uniq", *words, "operand"))


@pytest.mark.parametrize(
    "text",
    [
        *("ls -la --color=never src", "cd src && cat a.py b.py | head -n 40", "grep -rn --include=*.py -e 'x y' src"),
        *("find . -maxdepth 2 -name '*.py' -newermt '2026-01-01' -size +10k -print", "sed -n '10,20p;30p' a.py"),
        *("git status --short --branch", "git diff --stat HEAD~3 -- src", "git log --oneline -n 20 --graph -p -20"),
        *("git --no-pager -C sub log '--format=%h %an %s' -5", "git show HEAD:README.md", "git branch --show-current"),
        *("git blame -L 1,20 a.py", "git ls-files | wc -l", "git grep -n TODO", "git stash list", "git remote -v"),
        *("sort -k2,2nr -t, f | uniq -c | sort -rn | head -20", "diff -u a b", "file -b a", "tail -n +5 f", "date +%F"),
        *("rg -n --hidden -g '!node_modules' -t py 'def x' src", "jq -r '.a[] | .b' f.json", "tree -L 2 -a", "env"),
        *("command -v node", "type -a python3", "wc -l a b && du -sh . && stat -c %s a", "git config --get user.name"),
        *("git rev-parse --abbrev-ref HEAD", "git describe --tags --always --dirty", "uname -a; nproc; whoami; pwd"),
    ],
)
def test_what_people_look_at_is_read(text: str) -> None:
    assert reads(text.replace("--include=*.py", "'--include=*.py'"))


@pytest.mark.parametrize(
    "text",
    ["", "# only", "ls > f", "ls; $x", "cd a b", "cd a && make", "./ls", "/usr/bin/ls", "LS", "ls | tee f", "git", "x"],
)
def test_what_is_not_known_only_to_read(text: str) -> None:
    assert not reads(text)


_CHANGED = """\
state() { find . -path ./.git -prune -o -type f -printf '%p %m ' -exec cat {} + | cksum; }
tried=
after=
while IFS= read -r -d '' text; do
    program=${text%%-*}
    if [ "$program" != "$tried" ]; then
        wait
        before=$after
        after=$(state)
        [ -z "$before" ] || [ "$after" = "$before" ] || printf '%s\\n' "$tried"
        tried=$program
    fi
    timeout -s KILL 1 bash -c "$text" >/dev/null 2>&1 </dev/null &
    (( ++count % 8 )) || wait  # some wait until their time is over
done <texts 2>/dev/null
"""


def options_of(name: str) -> set[str]:
    """All that its help speaks of, long ones that take a value with a `=`."""
    words = name.split()
    asked = [*words[:2], "-h"] if words[0] == "git" else [words[0], "--help"]
    told = subprocess.run(asked, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=20, check=False)
    seen = re.findall(r"(?<![\w-])(-[A-Za-z0-9]|--[a-z][\w-]+)(?![\w-])(\[?=|[ ]?<)?", told.stdout + told.stderr)
    return {f"{option}=" if value and option.startswith("--") else f"{option} " for option, value in seen}


@needs_box
def test_no_option_that_is_read_runs_or_writes() -> None:
    """Every option of every installed reader's own help, with a program as its value or behind it; by day some."""
    texts = []
    for name in READERS:
        if shutil.which(name.split()[0]) and not name.startswith("command "):
            tried = [f"{name} {option}./pwn" for option in sorted(options_of(name))]
            texts += [text for text in tried if allowed(text, [f"{name} *"])]
    assert len(texts) > 500, len(texts)
    assert asyncio.run(_changing([*texts[:: at_night(1, 5)], "true -"])) == []
    writers = ["sort -o f ./pwn", "ls -l", "find . -name pwn -exec {} ';'", "true -"]
    assert asyncio.run(_changing(writers)) == ["sort ", "find . "]  # they would be seen


async def _changing(texts: list[str]) -> list[str]:
    """Those of the texts that change a file, or run the program `pwn`."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "pwn").write_text("#!/bin/sh\ntouch ran\n")
        (folder / "pwn").chmod(0o755)
        (folder / "f").write_text("b\na\n")
        (folder / "texts").write_text("\0".join((*texts, "")))
        # A repository at the root is the owner's to make.
        await asyncio.to_thread(subprocess.run, ["git", "init", "-q", name], check=True)
        await _bash("git add f && git -c user.name=a -c user.email=a@example.org commit -qm f", folder)
        return (await _bash(_CHANGED, folder)).splitlines()


async def _bash(script: str, folder: Path) -> str:
    context = Context(folder, 5 * TIME_LIMIT_S, FOUND)
    async with aclosing(running("bash", "command")({"command": script}, context)) as news:
        *_, last = [seen async for seen in news]
    assert isinstance(last, Result) and last.ok, last
    return "" if last.text == "(no output)" else last.text
