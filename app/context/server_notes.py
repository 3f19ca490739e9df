"""Instructions and skills of MCP servers in the prompt: untrusted text, given as data, of servers that may be used."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from app.core.data_delimiters import code_for
from tools.base.patterns import lazy_pattern
from tools.tool import Tool

LEAST_WINDOW = 16_384  # tokens; a smaller model needs the room, and follows the tools' descriptions better alone
LEAST = 200  # characters that are worth a place
MOST = 40_000  # characters of all notes: a later cut would part one from its last delimiter
CHARACTERS_PER_TOKEN = 4
TITLE = "Notes of the MCP server {name} on its tools (untrusted)"
SKILLS = "Skills of the MCP server {name} (untrusted; read_skill shows one by its name, all by {name}/)"
BETWEEN = "\n\n"
CUT = "\n[The rest is left out: there is no room for it.]"
MOST_NAME = 80
_SPACES = lazy_pattern(r"\s+")


def notes_of_servers(
    instructions: Mapping[str, str],
    sources: Mapping[str, Collection[str]],
    tools: Iterable[Tool],
    window: int,
    share: float,
) -> str:
    """Return the instructions of the servers that have one of the `tools`, within this share of the window.

    `sources` are the servers' tools. The same in every run of a session, as long as the texts are.
    """
    names = {tool.name for tool in tools}
    offering = [server for server, those in sorted(sources.items()) if not names.isdisjoint(those)]
    return titled({server: instructions.get(server, "") for server in offering}, window, share)


def titled(texts: Mapping[str, str], window: int, share: float, title: str = TITLE) -> str:
    """Return texts of servers, by these, as data below a title for each, within this share of the window."""
    room = min(int(share * window) * CHARACTERS_PER_TOKEN, MOST) if window >= LEAST_WINDOW else 0
    notes: list[str] = []
    for server, text in texts.items():
        frame = len(_delimited(title, server, "")) + len(BETWEEN)
        if len(text) > room - frame:
            text = text[: room - frame - len(CUT)] + CUT if room - frame >= LEAST else ""
        if text:
            room -= len(text) + frame
            notes.append(_delimited(title, server, text))
    return BETWEEN.join(notes)


def _delimited(title: str, server: str, text: str) -> str:
    code = code_for(f"notes of {server}", text)
    title = title.format(name=_SPACES.sub(" ", server)[:MOST_NAME])
    return f"{title} [{code}]:\n{text}\n[end {code}]"
