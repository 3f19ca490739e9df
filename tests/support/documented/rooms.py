"""The rooms of each floor and what they import, from the import graph: for docs/architecture.md."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cache

from tests.support.sources import FLOORS, Source, imports, sources

Graph = Mapping[str, frozenset[str]]


def room_of(module: str) -> str:
    """The package or module directly below a floor; a floor without rooms is one."""
    floor, _, rest = module.partition(".")
    return floor if floor == "parsing" else f"{floor}.{rest.partition('.')[0]}"


@cache
def modules() -> dict[str, Source]:
    named = {one.module: one for one in sources() if one.path.startswith(FLOORS)}
    return {name: one for name, one in named.items() if name == "parsing" or name not in FLOORS}


@cache
def graph() -> Graph:
    """What each room imports: rooms of its own floor, and of those below."""
    found = defaultdict[str, set[str]](set)
    for name, source in modules().items():
        found[room_of(name)] |= {room_of(one) for one in imports(source, set(modules()))}
    return {room: frozenset(others - {room}) for room, others in found.items()}


@cache
def level_of(room: str) -> int:
    """0 for a room that imports no other of its floor; else one above the highest that it imports."""
    return 1 + max((level_of(one) for one in graph()[room] if same_floor(one, room)), default=-1)


def same_floor(one: str, other: str) -> bool:
    return one.partition(".")[0] == other.partition(".")[0]


def rooms_of(floor: str) -> list[str]:
    """Top to bottom."""
    found = [room for room in graph() if room.startswith(f"{floor}.") and not room.endswith("__main__")]
    return sorted(found, key=lambda room: (-level_of(room), room))


def floor_plan(floor: str) -> Iterator[str]:
    """The levels of a floor as a text picture, then a table: what each room holds and imports."""
    rooms = rooms_of(floor)
    yield "```"
    for level in sorted({level_of(room) for room in rooms}, reverse=True):
        yield f"{level}   " + "   ".join(short(room) for room in rooms if level_of(room) == level)
    yield "```"
    yield ""
    yield "| room | holds | imports |"
    yield "|---|---|---|"
    for room in rooms:
        others = ", ".join(sorted(short(one) for one in graph()[room] if same_floor(one, room)))
        yield f"| [`{short(room)}`](../{path_of(room)}) | {purpose(room)} | {others} |"


def short(room: str) -> str:
    return room.partition(".")[2]


def path_of(room: str) -> str:
    path = modules()[room].path if room in modules() else room.replace(".", "/")
    return path.removesuffix("/__init__.py")


def purpose(room: str) -> str:
    """The first paragraph of its docstring, on one line."""
    text = ast.get_docstring(modules()[room].tree) or ""
    return " ".join(text.partition("\n\n")[0].split()).rstrip(".")
