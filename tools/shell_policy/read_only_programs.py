"""Programs that are known only to read: the only ones that a pattern with a `*` can allow.

A list of the programs that run others can never be complete (env, xargs, git, vim, a shell of another name ...), so
this is a list of those that do not, each with the options that it may have. An option, a subcommand or a program that
is not here is unknown, and unknown is not allowed: a command that needs it is approved as a whole. Read from the
manuals and `--help` of Debian 12's versions. The sandbox is the boundary; git runs what a repository's own
configuration names (a hook, a filter) whatever the options are: tools.sandbox.git_repository looks at that.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from msgspec import Struct


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


class ReadOnly(Struct, frozen=True):
    """The options with which a program only reads. Long ones are whole: a shortened one may stand for another.

    `letters` are short options alone or together in one word, `valued` those whose value is the rest of the word or
    the word behind it. `words` matches further words that begin with `-`. `first` matches the first operand, `never`
    what no word may hold. Where an option stands does not matter, nor does a `--` before it: both are too easy to
    read in another way than the program does.
    """

    letters: str = ""
    valued: str = ""
    names: frozenset[str] = frozenset()
    words: str = r"(?!)"
    first: str = r".*"
    never: str = r"(?!)"

    def reads(self, words: Iterable[str]) -> bool:
        """Return whether the program only reads with these words behind its name."""
        operands = []
        for word in words:
            if re.search(self.never, word):
                return False
            if not word.startswith("-") or word == "-":
                operands.append(word)
            elif not self._knows(word):
                return False
        return not operands or bool(re.fullmatch(self.first, operands[0], re.DOTALL))

    def _knows(self, word: str) -> bool:
        if re.fullmatch(self.words, word, re.DOTALL):
            return True
        if word.startswith("--"):
            return word == "--" or word[2:].partition("=")[0] in self.names
        letters, valued = (f"[{re.escape(some)}]" if some else "(?!)" for some in (self.letters, self.valued))
        return bool(re.fullmatch(rf"-(?:{letters})*(?:{letters}|{valued}.*)", word, re.DOTALL))


NONE = r"(?!)"  # as `first`: no operand at all
_NUMBER = r"-\d+"
_WITH_ANY_OPTION = ReadOnly(words=r"-.*")

_HISTORY = ReadOnly(
    "abcDEFghiPpqRrstuvwWz",
    "BCGILlMnSUX",
    _set("""
        abbrev abbrev-commit after all all-match ancestry-path author author-date-order base before binary boundary
        branches cached cc check cherry cherry-mark cherry-pick children color color-moved color-moved-ws color-words
        committer compact-summary count cumulative date date-order decorate decorate-refs decorate-refs-exclude dense
        diff-algorithm diff-filter dirstat dst-prefix encoding exclude exit-code expand-tabs extended-regexp
        find-copies find-copies-harder find-object find-renames first-parent fixed-strings follow format full-diff
        full-history full-index function-context glob graph grep grep-reflog histogram ignore-all-space
        ignore-blank-lines ignore-cr-at-eol ignore-matching-lines ignore-space-at-eol ignore-space-change
        ignore-submodules indent-heuristic inter-hunk-context invert-grep left-only left-right line-prefix log-size
        max-count max-parents merge merge-base merges min-parents minimal name-only name-status no-abbrev
        no-abbrev-commit no-color no-decorate no-expand-tabs no-ext-diff no-index no-max-parents no-merges
        no-min-parents no-notes no-patch no-prefix no-relative no-renames no-textconv no-walk not notes numstat objects
        oneline ours parents patch patch-with-stat patience perl-regexp pickaxe-all pickaxe-regex pretty quiet raw
        reflog regexp-ignore-case relative relative-date remotes reverse right-only root shortstat show-pulls
        simplify-by-decoration simplify-merges since skip source sparse src-prefix staged stat stat-count
        stat-graph-width stat-name-width stat-width summary tags text theirs topo-order unified until use-mailmap
        walk-reflogs word-diff word-diff-regex ws-error-highlight
    """),
    words=_NUMBER,
    never=r"%[-+ ]?G",  # a format that shows signatures runs gpg
)
_LISTED = _set("all contains column ignore-case list merged no-color no-column no-contains no-merged points-at remotes "
               "show-current sort verbose color abbrev no-abbrev")  # fmt: skip
_READ_CONFIG = ReadOnly("z", "", _set("global local name-only null show-origin show-scope system worktree"))

GIT: dict[str, ReadOnly] = {
    **dict.fromkeys(("log", "show", "diff", "rev-list", "diff-tree", "stash show", "stash list"), _HISTORY),
    "reflog": ReadOnly("", "n", _HISTORY.names, _NUMBER, first=r"show", never=_HISTORY.never),
    "status": ReadOnly(
        "bsvz",
        "Mu",
        _set("""ahead-behind branch column find-renames ignore-submodules ignored long no-ahead-behind no-column
            no-renames null porcelain renames short show-stash untracked-files verbose"""),
    ),
    "blame": ReadOnly(
        "bcefklnpstw",
        "CLMS",
        _set("""abbrev color-by-age color-lines contents date first-parent ignore-rev ignore-revs-file incremental
            line-porcelain minimal no-progress porcelain reverse root show-email show-name show-number show-stats
            since"""),
    ),
    "shortlog": ReadOnly(
        "cens", "w", _set("after all author before committer email group merges no-merges numbered since summary until")
    ),
    "describe": ReadOnly(
        names=_set("abbrev all always candidates contains dirty exact-match exclude first-parent long match tags")
    ),
    "rev-parse": ReadOnly(
        "q",
        names=_set("""abbrev-ref absolute-git-dir all branches default git-common-dir git-dir git-path
            is-bare-repository is-inside-git-dir is-inside-work-tree is-shallow-repository quiet remotes
            short show-cdup show-object-format show-prefix show-superproject-working-tree show-toplevel symbolic
            symbolic-full-name tags verify"""),
    ),
    "ls-files": ReadOnly(
        "cdfikmostuvz",
        "xX",
        _set("""abbrev cached debug deduplicate deleted directory empty-directory eol error-unmatch exclude
            exclude-from exclude-per-directory exclude-standard full-name ignored killed modified no-empty-directory
            others stage unmerged"""),
    ),
    "ls-tree": ReadOnly("dlrtz", "", _set("abbrev full-name full-tree long name-only name-status object-only")),
    "merge-base": ReadOnly("a", "", _set("all fork-point independent is-ancestor octopus")),
    "show-ref": ReadOnly("dqs", "", _set("abbrev dereference hash head heads quiet tags verify")),
    "cat-file": ReadOnly("epst"),
    "check-ignore": ReadOnly("nqvz", "", _set("no-index non-matching quiet verbose")),
    "count-objects": ReadOnly("vH", "", _set("human-readable verbose")),
    "grep": ReadOnly(
        "EFGHILPWacdhilnopqrvwz",
        "ABCefm",
        _set("""after-context all-match and basic-regexp before-context break cached color column context count
            exclude-standard extended-regexp files-with-matches files-without-match fixed-strings full-name
            function-context heading ignore-case invert-match line-number max-count max-depth name-only no-color
            no-exclude-standard no-index no-recursive no-textconv not null only-matching or perl-regexp quiet recursive
            show-function text threads untracked word-regexp"""),
        _NUMBER,
    ),
    # With an operand, each of these makes or changes something.
    "branch": ReadOnly("ailrv", "", _LISTED, first=NONE),
    "tag": ReadOnly("il", "n", _LISTED, first=NONE),
    "remote": ReadOnly("v", "", _set("verbose"), first=NONE),
    "branch --list": ReadOnly("aiv", "", _LISTED),
    "tag -l": ReadOnly("i", "n", _LISTED),
    "tag --list": ReadOnly("i", "n", _LISTED),
    "remote get-url": ReadOnly(names=_set("all push")),
    "worktree list": ReadOnly("vz", "", _set("porcelain verbose")),
    **dict.fromkeys(("config --get", "config --get-all", "config --list", "config -l"), _READ_CONFIG),
    "--version": ReadOnly(first=NONE),
}

READERS: dict[str, ReadOnly] = {
    # No option of these writes or runs anything, in GNU's, procps' and util-linux' versions or in bash.
    **dict.fromkeys(
        _set("""
        arch b2sum base32 base64 basename cat cksum cmp column comm cut df dirname du echo egrep expand expr factor
        false fgrep fmt fold free grep groups head hexdump id join logname ls md5sum nl nproc numfmt od paste pr
        printenv ps pwd readlink realpath rev seq sha1sum sha224sum sha256sum sha384sum sha512sum sleep stat sum tac
        tail tr true tsort tty type uname unexpand uptime users wc which who whoami
        """),
        _WITH_ANY_OPTION,
    ),
    "command -v": ReadOnly(first=r"[\w.+-]+"),
    "command -V": ReadOnly(first=r"[\w.+-]+"),
    "env": ReadOnly(first=NONE),  # an operand is a program
    "date": ReadOnly(
        "uR",
        "I",
        _set("date iso-8601 reference rfc-3339 rfc-email universal utc"),
        first=r"\+.*",  # another operand sets the clock
    ),
    "hostname": ReadOnly("AIadfis", first=NONE),  # an operand sets the name
    "uniq": ReadOnly(
        "Dcdiuz",
        "fsw",
        _set("all-repeated check-chars count group ignore-case repeated skip-chars skip-fields unique zero-terminated"),
        first=NONE,  # a second operand is written to
    ),
    "sed": ReadOnly("nEr", first=r"(?:\d+|\$)(?:,(?:[+~]?\d+|\$))?p(?:;(?:\d+|\$)(?:,(?:[+~]?\d+|\$))?p)*"),
    "sort": ReadOnly(
        "CMRVbcdfghimnrsuz",
        "Skt",
        _set("""batch-size buffer-size check debug dictionary-order field-separator files0-from general-numeric-sort
            human-numeric-sort ignore-case ignore-leading-blanks ignore-nonprinting key merge month-sort numeric-sort
            parallel random-sort random-source reverse sort stable unique version-sort zero-terminated"""),
    ),
    "diff": ReadOnly(
        "BENTZabcdeinpqrstuwy",
        "CDFISUWXx",
        _set("""brief color context exclude exclude-from expand-tabs from-file horizon-lines ifdef ignore-all-space
            ignore-blank-lines ignore-case ignore-file-name-case ignore-matching-lines ignore-space-change
            ignore-tab-expansion ignore-trailing-space initial-tab label left-column line-format minimal new-file
            no-dereference normal rcs recursive report-identical-files show-c-function show-function-line side-by-side
            speed-large-files starting-file strip-trailing-cr suppress-blank-empty suppress-common-lines tabsize text
            to-file unidirectional-new-file unified width"""),
        _NUMBER,
    ),
    "file": ReadOnly(
        "0ELNbhiklnrs",
        "FPef",
        _set("""apple brief dereference exclude exclude-quiet extension files-from keep-going list mime mime-encoding
            mime-type no-buffer no-dereference no-pad parameter print0 raw separator special-files"""),
    ),
    "strings": ReadOnly("adfow", "Uenst", _set("all bytes data encoding include-all-whitespace print-file-name radix")),
    "find": ReadOnly(
        words=r"""-(?:a|amin|and|anewer|atime|cmin|cnewer|ctime|daystart|depth|empty|executable|false|follow|fstype|gid
            |group|[HLP]|O[0-3]|i?lname|i?name|i?path|i?regex|regextype|i?wholename|ignore_readdir_race|inum|links|ls
            |maxdepth|mindepth|mmin|mount|mtime|newer(?:[aBcm][aBcmt])?|nogroup|noleaf|not|nouser|nowarn|o|or|perm
            |print|print0|printf|prune|quit|readable|samefile|size|true|type|uid|used|user|warn|writable|xdev|xtype
            |\d[\w./]*)""".replace("\n", "").replace(" ", ""),
    ),
    "tree": ReadOnly(
        "ACDFJNQSUXacdfghilnpqrstuvx",
        "HILPT",
        _set("""charset device dirsfirst du filelimit filesfirst fromfile gitignore ignore-case inodes matchdirs
            metafirst nolinks noreport prune si sort timefmt"""),
    ),
    "rg": ReadOnly(
        ".0FHILNPSUabchilnopqsuvwx",
        "ABCEMTdefgjmrt",
        _set("""after-context before-context binary byte-offset case-sensitive color colors column context
            context-separator count count-matches crlf debug encoding engine field-context-separator
            field-match-separator file files files-with-matches files-without-match fixed-strings follow glob
            glob-case-insensitive heading hidden iglob ignore-case ignore-file include-zero invert-match json
            line-buffered line-number line-regexp max-columns max-columns-preview max-count max-depth max-filesize
            multiline multiline-dotall no-config no-filename no-heading no-ignore no-ignore-dot no-ignore-exclude
            no-ignore-files no-ignore-global no-ignore-messages no-ignore-parent no-ignore-vcs no-line-number
            no-messages no-mmap no-require-git no-unicode null null-data one-file-system only-matching passthru
            path-separator pcre2 pcre2-version pretty quiet regexp replace smart-case sort sortr stats text threads
            trim type type-add type-list type-not unrestricted vimgrep with-filename word-regexp"""),
    ),
    "jq": ReadOnly(
        "CMRSacejnrs",
        "",
        _set("""arg argjson args ascii-output color-output compact-output exit-status indent join-output jsonargs
            monochrome-output null-input rawfile raw-input raw-output slurp slurpfile sort-keys tab"""),
    ),
    **{f"git {name}": reader for name, reader in GIT.items()},
}


# What only adds something, and can be undone: no file that is there changes. Only where a sandbox holds the hooks and
# filters that git runs.
ADDERS: dict[str, ReadOnly] = {
    "mkdir": ReadOnly("pv", "", _set("parents verbose")),
    "git add": ReadOnly("ANnuv", "", _set("all dry-run ignore-errors intent-to-add no-all update verbose")),
    "git commit": ReadOnly("aqsv", "m", _set("all allow-empty message no-status quiet signoff verbose")),
}


def only_reads(words: tuple[str, ...]) -> bool:
    """Return whether a command (its words, unquoted) is known to do nothing but read and print."""
    return _fits(words, READERS)


def only_adds(words: tuple[str, ...]) -> bool:
    """Return whether a command is known to change nothing that is there."""
    return _fits(words, ADDERS)


def _fits(words: tuple[str, ...], table: Mapping[str, ReadOnly]) -> bool:
    words, _ = without_place(words)
    for length in (3, 2, 1):
        if reader := table.get(" ".join(words[:length])) if len(words) >= length else None:
            return reader.reads(words[length:])
    return False


def without_place(words: tuple[str, ...]) -> tuple[tuple[str, ...], list[str]]:
    """`git -C folder log` is `git log`, and the folder: of git's own options only these change nothing else."""
    folders = []
    while words[:2] == ("git", "--no-pager") or (words[:2] == ("git", "-C") and len(words) > 2):
        plain = words[1] == "--no-pager"
        folders += [] if plain else [words[2]]
        words = ("git", *words[2 if plain else 3 :])
    return words, folders
