"""The tools that a call of an unknown name may have meant: only to name the right one, never to run another."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Mapping
from itertools import islice

from parsing.aliases import loose
from tools.base.patterns import lazy_pattern

_NEAREST = 3
_MOST_NAMED = 6
_MOST_COMPARED = 500  # names, letter by letter: the loop waits for it
_MCP = "mcp__"
_HASHED = lazy_pattern(r"_[0-9a-f]{10}$")  # the end of a public name that was changed or cut
# Names that models know such tools by from elsewhere, without separators: only to name the right one.
ALSO_CALLED: Mapping[str, Collection[str]] = {
    "bash": ("shell", "sh", "terminal", "cmd", "command", "runcommand", "executecommand", "runshellcommand", "exec"),
    "python": ("codeinterpreter", "ipython", "runpython", "executepython", "runcode", "executecode"),
    "read_file": ("cat", "view", "viewfile", "openfile", "getfile", "readtextfile"),
    "write_file": ("createfile", "savefile", "create", "writetofile", "newfile"),
    "edit_file": ("strreplace", "replaceinfile", "applypatch", "strreplaceeditor", "replace"),
    "list_files": ("ls", "dir", "listdir", "listdirectory", "glob", "findfiles", "searchfiles"),
    "web_fetch": ("curl", "browse", "browser", "openurl", "visit", "geturl", "httpget"),
    "web_search": ("search", "google", "googlesearch", "searchweb", "internetsearch", "bing", "duckduckgo", "searxng"),
}


def near_names(name: str, names: Iterable[str]) -> list[str]:
    """Return the names that are written alike, that have this one behind their server, or else that mean the same."""
    names, called = list(names), _forms(name)
    whole = [one for one in names if loose(one) == loose(name)]
    behind = [one for one in names if called & _forms(one)]
    meant = [one for one in names if loose(name) in ALSO_CALLED.get(one, ())]
    if not (whole or behind):
        alike = difflib.get_close_matches(name, list(islice(names, _MOST_COMPARED)), n=_NEAREST)
        return alike or meant
    return list(dict.fromkeys([*whole, *behind, *meant]))[:_MOST_NAMED]


def _forms(name: str) -> frozenset[str]:
    """Return a name without its separators: whole, without `mcp__`, and the part behind its server."""
    plain = _HASHED.sub("", name).removeprefix(_MCP)
    tool = plain.partition("__")[2]
    return frozenset(filter(None, map(loose, (name, plain, tool))))
