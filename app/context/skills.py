"""Skills: folders with a SKILL.md, of which the prompt has one line each and a tool the text.

Those in the data directory are the operator's. Those in a workspace (`.agents/skills`) count once a person has accepted
their text, as AGENTS.md does.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Sequence
from itertools import islice
from pathlib import Path

from msgspec import Struct

from tools.base.outcome import ToolFailed
from tools.base.patterns import lazy_pattern
from tools.base.workspace import directory

logger = logging.getLogger(__name__)

FILE = "SKILL.md"
DATA_FOLDER = "skills"  # in the data directory
WORKSPACE_FOLDER = (".agents", "skills")
MOST_SKILLS, MOST_DESCRIPTION = 32, 300  # skills, and characters of one line
MOST_ENTRIES = 1_000  # of a folder: each run looks at them before it begins
TITLE = "Skills (read_skill shows one; read it before you do what it is about):"
NAME = lazy_pattern(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_FIELD = lazy_pattern(r"^(name|description):[ \t]*(.+)$")


class Skill(Struct, frozen=True):
    """A skill that can be used. `text` is the whole file."""

    name: str
    description: str
    text: str


def skill_paths(root: Path, parts: tuple[str, ...]) -> list[str]:
    """Return the paths below `root` of the SKILL.md files that may be there, sorted, the first ones only."""
    if not os.path.lexists("/".join((str(root), *parts))):
        return []
    try:
        with directory(root, parts) as opened, os.scandir(opened) as entries:
            names = first_names(entry.name for entry in entries)
    except (ToolFailed, OSError):
        return []
    return ["/".join((*parts, name, FILE)) for name in names]


def first_names(names: Iterable[str]) -> list[str]:
    """Return the names that skills can have, sorted, the first ones only; of a huge folder not all are looked at."""
    return sorted(name for name in islice(names, MOST_ENTRIES) if NAME.fullmatch(name))[:MOST_SKILLS]


def skill_of(path: str, text: str) -> Skill | None:
    """Return the skill in a file; None if its front matter has no description. The folder is the usual name."""
    head, found, _ = text.removeprefix("---\n").partition("\n---")
    found_fields = (_FIELD.match(line) for line in head.split("\n"))
    fields: dict[str, str] = {field[1]: field[2] for field in found_fields if field}
    name = fields.get("name", path.split("/")[-2]).strip().strip("\"'")
    description = fields.get("description", "").strip().strip("\"'")
    if not (text.startswith("---\n") and found and description and NAME.fullmatch(name)):
        logger.warning("%s is no skill: its front matter needs a name and a description", ascii(path))
        return None
    return Skill(name, description[:MOST_DESCRIPTION], text)


def each_once(skills: Iterable[Skill | None]) -> Sequence[Skill]:
    """Return the skills, of each name the first, and not too many."""
    found = dict[str, Skill]()
    for skill in skills:
        if skill and len(found) < MOST_SKILLS:
            found.setdefault(skill.name, skill)
    return tuple(found.values())


def skill_lines(skills: Sequence[Skill]) -> str:
    """Return a line per skill; empty without skills."""
    lines = [f"- {skill.name}: {skill.description}" for skill in skills]
    return "\n".join([TITLE, *lines]) if lines else ""
