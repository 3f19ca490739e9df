"""Programs that run others: what they run stands in their words, or cannot be read."""

from __future__ import annotations

import re

from tools.base.patterns import lazy_pattern


def _names(table: str) -> frozenset[str]:
    return frozenset(table.split())


# They start the program that is named in their words. Every word behind one may be it.
STARTERS = _names(
    """sudo doas env time nohup nice ionice exec command builtin xargs parallel stdbuf setsid timeout chroot unshare
    nsenter flock watch strace ltrace script taskset chrt runuser su unbuffer coproc busybox toybox coreutils setarch
    setpriv prlimit systemd-run systemd-inhibit dbus-run-session firejail bwrap fakeroot faketime catchsegv valgrind
    perf hyperfine entr ssh sshpass mosh rsh expect-lite mapfile readarray compgen trap eval daemonize start-stop-daemon
    cpulimit torsocks torify proxychains proxychains4 tsocks ip ld.so linux64 linux32 i386 x86_64 pkexec
    run-parts tini dumb-init gosu su-exec catatonit rlwrap script-wrapper xvfb-run caffeinate numactl schedtool"""
)
KEYWORDS = _names("""if then else elif while until do ! { ( [[""")  # a command can follow
# They read what they run from their standard input as well.
FED = frozenset(("xargs", "parallel", "entr"))
SHELLS = _names("""sh bash dash zsh ksh mksh ash fish rbash csh tcsh yash pwsh""")
# Their words are a program of their own, name a file with one, or change what later words mean.
_INTERPRETERS = lazy_pattern(
    r"""(?:python|pypy|ipython|perl|ruby|node|php|lua|luajit|tclsh|wish|guile|ghc|runghc|java|scala|R|julia)[\d.]*
    |nodejs|deno|bun|tsx|ts-node|irb|raku|Rscript|octave|groovy|kotlin|jshell|dotnet|mono|csi|erl|elixir|iex|swipl
    |[gmn]?awk|original-awk|sed|gsed|ed|ex|red|vim?|view|nvim|rvim|emacs|emacsclient|nano|pico|m4|dc|bc|expect|gdb|lldb
    |make|gmake|bmake|ninja|cmake|ctest|meson|just|task|rake|scons|ant|gradle|gradlew|mvn|bazel|buck2?|tox|nox|invoke
    |npm|npx|pnpm|pnpx|yarn|bunx|uv|uvx|pipx?|poetry|pdm|hatch|conda|mamba|cargo|go|gem|bundle|composer|pre-commit
    |source|\.|alias|unalias|hash|enable|bind|complete|fc|docker|podman|kubectl|nerdctl|lxc|lxc-attach|machinectl
    |crontab|at|batch|parallel|screen|tmux|dtach|abduco|socat|nc|ncat|netcat|telnet|sqlite3|psql|mysql|mariadb|redis-cli|mongosh?
    |less|more|most|man|info|pg|git-shell|rpm|dpkg|apt|apt-get|apk|dnf|yum|snap|flatpak|nix|nix-shell|nix-env|guix
    |zip|ar|cpio|pax|rsync|scp|sftp|wget|logrotate|capsh|openssl|gpg|ansible\S*|salt\S*|puppet|chef|vagrant|terraform
    |gcc|cc|g\+\+|c\+\+|clang\S*|ld|tcc|rustc|xdg-open|open|start|w3m|lynx|links|elinks|ffmpeg|convert|magick|gs|tex
    |latex|pdflatex|xelatex|lualatex|basez|jobs|disown|fg|bg|pytest|py\.test|jest|mocha|vitest|rspec|phpunit""",
    re.VERBOSE,
)
# Words with which these programs run what the words, a configuration or a repository name.
_RUNNING_WORDS = {
    "git": lazy_pattern(
        r"-c.*|--config-env.*|--exec-path.*|--exec.*|-x.*|config|foreach|run|filter-branch|difftool|mergetool|alias.*"
        r"|--upload-pack.*|--receive-pack.*|--extcmd.*|-O.*|--open-files-in-pager.*|.*::.*|-p|--paginate|hook"
    ),
    "tar": lazy_pattern(r"--to-command.*|--checkpoint-action.*|-?\w*[IF].*|--use-comp.*|--info-.*|--new-vol.*|--rsh.*"),
    "find": lazy_pattern(r"-f(?:print|ls|print0|printf)"),
    "sort": lazy_pattern(r"--compress-program.*"),
    "split": lazy_pattern(r"--filter.*"),
    "curl": lazy_pattern(r"-\w*K.*|--config.*|--engine.*"),
    "shopt": lazy_pattern(r"expand_aliases"),
    "ls": lazy_pattern(r"\0"),
}
# Variables that change which program a word means, or what a program runs.
MEANINGS = lazy_pattern(
    r"(?:PATH|CDPATH|HOME|IFS|ENV|BASH_ENV|BASH_\w+|SHELLOPTS|BASHOPTS|PROMPT_COMMAND|PS[0124]|EDITOR|VISUAL|PAGER|\w+_PAGER|BROWSER"
    r"|LESSOPEN|LESSCLOSE|LD_\w+|GIT_\w+|PYTHON\w*|PERL\w+|RUBY\w+|NODE_\w+|MAKEFLAGS|TAR_OPTIONS|ZDOTDIR|GCONV_PATH)\+?=.*",
)
# Programs whose words are never programs, options that write or read files included.
PLAIN = _names(
    """: true false echo printf pwd cd pushd popd ls dir cat tac head tail wc grep egrep fgrep rg cut tr uniq nl fold
    rm rmdir unlink mkdir mknod mkfifo mktemp touch cp mv ln link readlink realpath basename dirname stat file du df
    chmod chown chgrp shred truncate dd sync tee cmp comm diff join paste seq yes sleep date cal id whoami groups who
    hostname uname nproc uptime free ps kill pkill killall pgrep pidof test [ read export declare local readonly
    typeset unset set shift return exit break continue wait umask type which whereis tree jq base64 base32 md5sum
    sha1sum sha256sum sha512sum cksum od xxd hexdump strings gzip gunzip zcat bzip2 bunzip2 xz unxz zstd unzip
    expr factor rev column fmt expand unexpand iconv tput clear arch tty stty"""
)

_RECURSIVE = _names("""rg ag ack""")
_GREPS = _names("""grep egrep fgrep""")
_READS_ALL = frozenset((("git", "grep"), ("git", "archive")))
_RECURSIVE_OPTION = lazy_pattern(r"-[a-zA-Z]*[rR][a-zA-Z]*|--(?:dereference-)?recursive")
_LISTS_FILES = lazy_pattern(r"--files0?-from.*|-T.*")


def is_interpreter(program: str) -> bool:
    return _INTERPRETERS.fullmatch(program) is not None


def runs_by_words(program: str, words: tuple[str, ...]) -> bool:
    """Return whether one of the words makes the program run something that cannot be read."""
    pattern = _RUNNING_WORDS.get(program)
    return pattern is not None and any(pattern.fullmatch(word) for word in words)


def reads_more(program: str, words: tuple[str, ...]) -> bool:
    """Return whether the program reads files that its words do not name: a whole folder, or those that a file lists."""
    if any(map(_LISTS_FILES.fullmatch, words)) or (program, *words[:1]) in _READS_ALL:
        return True
    recursive = program in _RECURSIVE or (program in _GREPS and any(map(_RECURSIVE_OPTION.fullmatch, words)))
    named = [word for word in words if not word.startswith("-")]
    return recursive and len(named) < 2  # the pattern alone
