"""Which programs run others, or write where their words say: what a pattern with a `*` never allows.

The lists cannot be complete, and need not be: nothing is allowed that no pattern names, and the sandbox is the
boundary. They keep a person who allows `find *` from allowing `find -exec` unawares.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_RUNNERS = """
    . source eval exec command builtin trap alias unalias enable hash bind complete compgen compopt fc jobs wait
    history set shopt export declare typeset local readonly unset let read readarray mapfile getopts printf test
    bash rbash sh dash ash zsh ksh mksh fish csh tcsh elvish xonsh nu pwsh busybox toybox
    env xargs parallel sudo doas su runuser pkexec nice ionice chrt taskset timeout nohup setsid stdbuf time gtime
    chroot unshare nsenter setpriv setarch linux32 linux64 capsh prlimit bwrap firejail fakeroot proot choom numactl
    run0 sg newgrp login runcon aa-exec pipesz uclampset coresched cgexec cpulimit logsave hyperfine eatmydata xvfb-run
    dbus-run-session torsocks proxychains i386 x86_64 uname26 chpst direnv mise asdf pyenv rbenv pkttyagent
    flock watch entr script expect unbuffer rlwrap socat nc ncat netcat telnet strace ltrace perf valgrind gdb lldb
    loginctl machinectl at batch crontab systemd-run systemctl journalctl service start-stop-daemon run-parts
    dbus-send dbus-launch
    tmux screen xterm x-terminal-emulator xdg-open open run-mailcap see edit logrotate ld ldd ldconfig
    awk gawk mawk nawk sed ed red ex vi vim vimdiff view rvim nvim emacs nano pico joe micro editor sensible-editor
    less more most pager sensible-pager man info apropos whatis mail mailx mutt
    python pypy ipython jupyter perl ruby irb node nodejs deno bun php lua luajit tclsh wish guile julia octave
    r rscript java jshell groovy scala kotlin go cargo rustc swift ghc runghc dotnet erl elixir iex ocaml sbcl clisp
    make gmake cmake ctest ninja meson scons bazel just task rake ant mvn gradle sbt tox nox pre-commit
    npm npx yarn pnpm bunx corepack pip pipx uv uvx poetry pdm conda mamba gem bundle composer luarocks cpan
    apt apt-get aptitude dpkg rpm yum dnf apk pacman brew snap flatpak nix nix-shell nix-build guix
    docker podman nerdctl buildah kubectl helm ssh scp sftp rsync mosh telnet ftp lftp curl wget aria
    ip tc iptables mount umount modprobe insmod tcpdump tshark nmap bpftrace ctags cscope ugrep ug mc nnn latexmk
    hg svn cvs bzr jj gh glab ansible terraform vagrant
    tar bsdtar cpio pax zip unzip 7z 7za rar ar split csplit install patch tee dd truncate
    gcc g++ cc c++ cpp clang clang++ tcc as objdump m4 bc dc gnuplot tex latex pdflatex xelatex lualatex bibtex
    sqlite sqlite3 psql mysql mariadb redis-cli mongosh duckdb xmllint openssl gpg ssh-keygen ssh-agent ssh-add
    zgrep zegrep zfgrep bzgrep xzgrep zless zmore zcat zdiff zcmp lesspipe lessfile ack ag fzf tig lazygit ranger
    nm gcc-nm ranlib gcc-ranlib bat batcat delta yq rename prename file-rename mmv sysctl ss ifconfig route chronic ifne
    pee sponge vidir vipe zrun gzexe pv dmesg setfacl chattr rdfind fdupes
    convert magick mogrify ffmpeg gs iconv date hostname hostnamectl timedatectl uniq xxd shuf
"""
RUNNERS = frozenset(_RUNNERS.split())
"""Programs that run, read or write what their words say in more ways than a list of options can tell."""

_GIT_READS = frozenset(
    (
        *("status", "log", "diff", "show", "blame", "shortlog", "describe", "rev-parse", "rev-list", "ls-files"),
        *("ls-tree", "merge-base", "grep"),
    )
)


@dataclass(frozen=True, slots=True)
class Options:
    """Options with which a program that else only reads would run or write something.

    `letters` are short ones, alone or among others in one word. `names` are long ones, which may be cut short.
    `words` are matched whole.
    """

    letters: str = ""
    names: tuple[str, ...] = ()
    words: str = r"(?!)"

    def in_word(self, word: str) -> bool:
        if re.fullmatch(self.words, word, re.DOTALL):
            return True
        if word.startswith("--"):
            given = word.partition("=")[0]
            return word != "--" and any(name.startswith(given) for name in self.names)
        return word.startswith("-") and not set(self.letters).isdisjoint(word)


OPTIONS = {
    "find": Options(words=r"-(exec|ok|delete|fprint|fls).*"),
    "fd": Options("xXl", ("--exec", "--exec-batch", "--list-details")),
    "rg": Options("z", ("--pre", "--hostname-bin", "--search-zip")),
    "sort": Options("oT", ("--output", "--compress-program", "--temporary-directory")),
    "tree": Options("oR", ("--output",)),  # -R writes a page in each directory
    "file": Options("CmpzZS", ("--compile", "--preserve-date", "--uncompress", "--magic-file", "--no-sandbox")),
    "diff": Options("l", ("--paginate",)),
    # Each runs a program, or writes, of whatever the repository's configuration names. That configuration is trusted
    # by whoever allows git at all: `git status` and `git diff` follow it without any option.
    "git": Options(
        "O",
        (
            *("--output", "--ext-diff", "--textconv", "--open-files-in-pager", "--ext-grep", "--show-signature"),
            *("--remerge-diff", "--exec", "--exec-path", "--upload-pack", "--receive-pack", "--config-env", "--help"),
        ),
        r".*%G.*",
    ),
}
OPTIONS["fdfind"] = OPTIONS["fd"]


def reaches_out(words: tuple[str, ...]) -> bool:
    """Whether a command may run another program, or write where its words say, as far as it is known."""
    for name in _names(words[0]):
        if name in RUNNERS or name.startswith("ld-"):
            return True
        if name == "git" and (len(words) < 2 or words[1] not in _GIT_READS):
            return True
        if name in OPTIONS and any(map(OPTIONS[name].in_word, words[1:])):
            return True
    return False


def _names(name: str) -> Iterator[str]:
    """What a program may be called in the lists: without folder, version (`python3.11`) or GNU's `g` (`gfind`)."""
    base = name.rpartition("/")[2].lower()
    stem = base.partition(".")[0]
    for one in {base, stem, stem.rstrip("-0123456789")}:
        yield one
        yield one.removeprefix("g")
