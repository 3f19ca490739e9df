"""Detection of shell commands that plainly need the network: the call then requests it, instead of failing first.

A heuristic: a false positive costs one approval, a false negative runs without network and gets a hint when it fails.
So it continues where a text is not plain, unlike plain_commands, which decides what may run.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import chain

from parsing import Arguments
from tools.base.patterns import lazy_pattern
from tools.shell_policy.plain_commands import Doubt, Words, simple_commands
from tools.web.egress import NETWORK, normalise_network

_MAX_READ = 12_000  # characters: more would hold the event loop
_NESTED = 3  # `bash -c` in `bash -c`
_ROUGHLY = lazy_pattern(
    r"""(?P<blank>[ \t]+|\\\n)
    | (?P<comment>(?<![^\s;|&(])\#[^\n]*)
    | (?P<end>[;&|()`{}\n]|\$\()
    | (?P<word>(?:'[^']*'|"(?:[^"\\]|\\.)*"|\\.|[^\s;&|()`{}'"\\$]|\$(?!\())+)
    | (?P<rest>.)""",
    re.VERBOSE | re.DOTALL,
)
_HEREDOC = lazy_pattern(r"<<-?[ \t]*(['\"]?)(\w+)\1")
ASSIGNMENT = lazy_pattern(r"[A-Za-z_]\w*\+?=")
# Words in front of a command, and how many further ones belong to each.
_IN_FRONT = {
    **dict.fromkeys(
        ["sudo", "env", "time", "nohup", "nice", "exec", "command", "builtin", "xargs", "stdbuf", "setsid"], 0
    ),
    **dict.fromkeys(["if", "then", "else", "elif", "while", "until", "do", "!"], 0),
    "timeout": 1,
}
SHELLS = ("bash", "sh", "dash", "zsh")
_OFFLINE = frozenset(("--no-index", "--offline", "--frozen", "--help", "-h", "--version", "--no-install"))
_SUBCOMMANDS: dict[str, str] = {
    "pip": "install download wheel index",
    "pipx": "install run upgrade inject",
    "uv": "add sync lock tool pip",
    "poetry": "install add update lock publish",
    "pdm": "install add update lock sync publish",
    "conda": "install create update search",
    "mamba": "install create update search",
    "npm": "install i ci add update upgrade audit publish view info search outdated exec x create",
    "pnpm": "install i add update up dlx fetch publish outdated",
    "yarn": "install add upgrade up dlx create publish outdated",
    "bun": "install i add update x create publish outdated",
    "deno": "install add cache",
    "apt": "update install upgrade full-upgrade build-dep download source",
    "apt-get": "update install upgrade dist-upgrade build-dep download source",
    "apk": "add update upgrade fetch",
    "dnf": "install update upgrade download",
    "yum": "install update upgrade download",
    "brew": "install update upgrade fetch",
    "cargo": "fetch install update add search publish generate-lockfile",
    "go": "get install",
    "gem": "install update fetch push",
    "bundle": "install update add",
    "composer": "install require update create-project",
    "hf": "download upload",
    "huggingface-cli": "download upload",
}
_ALWAYS = frozenset(("npx", "pnpx", "bunx", "uvx"))
_ALONE = frozenset(("yarn", "bundle"))  # without words they install
_LOADERS = frozenset(("curl", "wget", "aria2c", "http", "https", "xh"))
_LOADER_VALUES = frozenset(
    (
        *("-o", "--output", "-H", "--header", "-d", "--data", "--data-raw", "--data-binary", "-X", "--request", "-u"),
        *("--user", "-A", "--user-agent", "-e", "-F", "--form", "-T", "-b", "-c", "-w", "--write-out", "-O", "-P"),
        *("--max-time", "-m", "--retry", "--connect-timeout", "--noproxy", "--cacert", "-K"),
    )
)
_GIT_REMOTE = frozenset(("clone", "fetch", "pull", "push", "ls-remote"))
_GIT_PAIRS = frozenset(
    (("submodule", "update"), ("submodule", "add"), ("remote", "update"), ("lfs", "pull"), ("lfs", "fetch"))
)
_VALUE_OF_GIT = frozenset(("-C", "-c", "--git-dir", "--work-tree", "--namespace"))
_HOST = lazy_pattern(r"[\w-]+(\.[\w-]+)+(:\d+)?([/?].*)?|[\w.-]+:\d+([/?].*)?|localhost([/?].*)?", re.ASCII)
_REMOTE_PATH = lazy_pattern(r"(?:[\w.-]+@)?(?P<host>[\w.-]{2,}|\[[0-9a-f:]+\]):(?!//)", re.ASCII)
# Options by which a program of _LOADERS reads a file, or calls something else than its URLs.
_ELSEWHERE = lazy_pattern(
    r"(?i:file):|-[a-zA-Z]*[Kx]|--(config|unix-socket|abstract-unix|proxy|preproxy|socks|resolve|connect-to|input-file)"
)
_LOOPBACK = lazy_pattern(r"(.*\.)?localhost|127(\.\d+){1,3}|0\.0\.0\.0|\[?::1?\]?")


def request_network(arguments: Arguments) -> Arguments:
    """The arguments of `bash` with `network` in its one form, `true` where the command plainly needs it.

    An explicit `false` stays for such a command.
    """
    written, command = arguments.get(NETWORK), arguments.get("command")
    arguments = normalise_network(arguments)
    if NETWORK in arguments or not isinstance(command, str) or not needs_network(command):
        return arguments
    return {**arguments, NETWORK: written is not False}


def needs_network(command: str) -> bool:
    """Return whether a program in the command plainly reaches for another machine. Total, in linear time."""
    return any(map(_reaches, _commands(command[:_MAX_READ], _NESTED)))


def calls_only_loopback(command: str) -> bool:
    """Return whether the text is plain, and only calls services on this machine's loopback."""
    read = simple_commands(command)
    if isinstance(read, Doubt) or not read or any(map(_ELSEWHERE.match, chain.from_iterable(read))):
        return False
    called = [list(_urls(words[1:])) for words in read if words[0] in _LOADERS]
    return len(called) == len(read) and all(urls and all(map(_is_loopback, urls)) for urls in called)


def _commands(text: str, depth: int) -> Iterator[Words]:
    read = simple_commands(text)
    for words in roughly(text) if isinstance(read, Doubt) else read:
        words = _bare(words)
        if words and words[0].rpartition("/")[2] in SHELLS and "-c" in words and depth:
            yield from _commands(" ".join(words[words.index("-c") + 1 :][:1]), depth - 1)
        elif words:
            yield words


def roughly(text: str) -> Iterator[Words]:
    """The words of each command as far as they can be made out; quotes off, expansions as they stand."""
    words: list[str] = []
    for found in _ROUGHLY.finditer(_without_heredocs(text)):
        if found.lastgroup == "word":
            words.append(re.sub(r"['\"]|\\(?=.)", "", found[0]))
        elif found.lastgroup == "end":
            yield tuple(words)
            words = []
    yield tuple(words)


def _without_heredocs(text: str) -> str:
    """Remove here-documents, which are no commands."""
    lines, until = [], ""
    for line in text.split("\n"):
        if until:
            until = "" if line.strip() == until else until
            continue
        lines.append(line)
        if found := _HEREDOC.search(line):
            until = found[2]
    return "\n".join(lines)


def _bare(words: Sequence[str]) -> Words:
    """Strip assignments and programs that only start another."""
    at = 0
    while at < len(words):
        word = words[at].rpartition("/")[2]
        if ASSIGNMENT.match(words[at]):
            at += 1
        elif word in _IN_FRONT:
            at += 1
            while at < len(words) and words[at].startswith("-"):
                at += 1
            at += _IN_FRONT[word]
        else:
            break
    return tuple(words[at:])


def _reaches(words: Words) -> bool:
    program, rest = words[0].rpartition("/")[2], words[1:]
    if re.fullmatch(r"(python|pypy)[\d.]*", program) and rest[:1] == ("-m",) and len(rest) > 1:
        program, rest = rest[1], rest[2:]
    program = re.sub(r"^pip[\d.]+$", "pip", program)
    if not _OFFLINE.isdisjoint(rest):
        return False
    if program in _SUBCOMMANDS:
        return _installs(program, [word for word in rest if not word.startswith("-")])
    if program in _LOADERS:
        return any(not _is_loopback(url) for url in _urls(rest))
    reads = _SPECIAL.get(program)
    return (program in _ALWAYS and bool(rest)) or bool(reads and reads(rest))


def _installs(program: str, words: Sequence[str]) -> bool:
    if not words:
        return program in _ALONE
    if (program, *words[:2]) in (("go", "mod", "download"), ("go", "mod", "tidy")):
        return True
    if program == "go" and words[0] == "install":
        return any("@" in word for word in words)
    if (program, words[0]) == ("uv", "pip"):
        return _installs("pip", words[1:])
    return words[0] in _SUBCOMMANDS[program].split()


def _urls(words: Sequence[str]) -> Iterator[str]:
    value = False
    for word in words:
        if not value and ("://" in word or _HOST.fullmatch(word)):
            yield word
        value = word in _LOADER_VALUES


def _is_loopback(url: str) -> bool:
    scheme, separator, rest = url.rpartition("://")
    host = re.split(r"[/?#]", rest, maxsplit=1)[0].rpartition("@")[2]
    host = host if host.endswith("]") else re.sub(r":\d+$", "", host)
    return (bool(separator) and scheme == "file") or bool(_LOOPBACK.fullmatch(host.lower()))


def _git(words: Words) -> bool:
    at = 0
    while at < len(words) and words[at].startswith("-"):
        at += 2 if words[at] in _VALUE_OF_GIT else 1
    if words[at : at + 2] in _GIT_PAIRS:
        return True
    if not words[at:] or words[at] not in _GIT_REMOTE:
        return False
    named = [word for word in words[at + 1 :] if not word.startswith("-")]
    if remote := [word for word in named if "://" in word or _REMOTE_PATH.match(word)]:
        return not all(map(_is_on_this_machine, remote))
    # Bare words: only paths can be cloned; elsewhere the first is a path or the name of a remote.
    return words[at] != "clone" and not (named and named[0].startswith((".", "/", "~")))


def _is_on_this_machine(repository: str) -> bool:
    if "://" in repository:
        return _is_loopback(repository)
    found = _REMOTE_PATH.match(repository)
    return bool(found and _LOOPBACK.fullmatch(found["host"]))


def _ssh(words: Words) -> bool:
    hosts = [word for word in words if not word.startswith("-")]
    return bool(hosts) and not any(_LOOPBACK.fullmatch(host.rpartition("@")[2]) for host in hosts)


def _copies(words: Words) -> bool:
    found = [match["host"] for word in words if (match := _REMOTE_PATH.match(word))]
    return any(not _LOOPBACK.fullmatch(host) for host in found) or any("://" in word for word in words)


def _gh(words: Words) -> bool:
    return bool(words) and words[0] not in ("help", "version", "config", "alias", "completion")


_SPECIAL: dict[str, Callable[[Words], bool]] = {
    "git": _git,
    "ssh": _ssh,
    "scp": _copies,
    "sftp": lambda words: bool(words),
    "rsync": _copies,
    "gh": _gh,
}
