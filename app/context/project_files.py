"""Instructions that lie in a workspace, AGENTS.md and skills: they count once a person has accepted exactly this text.

Tools can write any file there, and so could the author of the project. What was accepted is remembered by its digest; a
file that differs is left out of the prompt until a person has seen the difference. It is text, and never a setting.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import os
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from msgspec import Struct
from msgspec.json import Decoder, encode

from app.context.skills import DATA_FOLDER, WORKSPACE_FOLDER, Skill, each_once, skill_of, skill_paths
from app.core.events import Notice
from app.replicas.peers import Alone, Peers
from app.storage.changes import StoreFailed
from app.storage.state import StateRow, StateStore
from tools.base.escape_invisible import visible
from tools.base.file_stamps import Stamp, is_settled, stamp_of
from tools.base.outcome import ToolFailed
from tools.base.workspace import regular_file

logger = logging.getLogger(__name__)

AGENTS = "AGENTS.md"
STATE = "project_files"
MOST = 16_000  # characters of a file
MOST_BYTES = 4 * MOST
MOST_NAMED = 5  # files in a notice
MOST_CACHED = 256  # files
MOST_DECISIONS = 200  # that are remembered
NEW, CHANGED, ACCEPTED, DECLINED, UNUSABLE = "new", "changed", "accepted", "declined", "unusable"
UNACCEPTED = (
    "{names} of the workspace: not in the prompt, because this text is not accepted. See it on the page, or with "
    "`dragoman project`."
)


class ProjectFile(Struct, frozen=True):
    """A file as it is now, its invisible characters made visible. With a `problem` it cannot be used."""

    path: str
    text: str = ""
    digest: str = ""
    problem: str = ""


class FileDecision(Struct, frozen=True):
    """The latest decision of a person on a file, and the text that it was about."""

    digest: str
    text: str
    accepted: bool
    by: str
    at: float


class ReviewedFile(Struct, frozen=True):
    """A file, its state, and the text that was decided on before, if there was one."""

    file: ProjectFile
    state: str
    before: str | None = None


class ProjectContext(Struct, frozen=True):
    """The part of a prompt that a workspace adds. `waiting`: the files whose present content has no decision."""

    agents: str = ""
    skills: Sequence[Skill] = ()
    waiting: Sequence[str] = ()


def notices_of(project: ProjectContext) -> Sequence[Notice]:
    """Return the notice of files that wait for a person's decision, if there are any."""
    names = ", ".join(project.waiting[:MOST_NAMED])
    return (Notice("project_files", UNACCEPTED.format(names=names)),) if names else ()


class DigestChanged(Exception):
    """The file is not the one that the decision was about."""


class ProjectFiles:
    """The decisions on files of all workspaces. Without a store they last as long as this object."""

    def __init__(self, store: StateStore | None = None, peers: Peers | None = None) -> None:
        self._store = store
        self._decisions: dict[str, FileDecision] = {}  # by absolute path
        self._cache = FileCache()
        self.changing = (peers or Alone()).changing(STATE, self.reload)

    async def load(self) -> None:
        """Read what was decided; what cannot be read was not."""
        try:
            await self.reload()
        except (StoreFailed, ValueError) as error:
            logger.error("decisions on files of workspaces cannot be read, so all are open again: %s", error)

    async def reload(self) -> None:
        """Raises StoreFailed, ValueError."""
        value = await self._store.state(STATE) if self._store else None
        self._decisions = Decoder(dict[str, FileDecision]).decode(value) if value else {}

    def context(self, workspace: Path, data_dir: Path) -> ProjectContext:
        """Return what the workspace and the skills of the data directory add to a prompt now. Blocks."""
        reviewed = self.files(workspace)
        accepted = [one.file for one in reviewed if one.state == ACCEPTED and one.file.path != AGENTS]
        skills = each_once(skill_of(file.path, file.text) for file in [*self._trusted(data_dir), *accepted])
        agents = next((one.file.text for one in reviewed if one.file.path == AGENTS and one.state == ACCEPTED), "")
        return ProjectContext(agents, skills, tuple(one.file.path for one in reviewed if one.state in (NEW, CHANGED)))

    def is_bare(self, workspace: Path, data_dir: Path) -> bool:
        """Return True if neither has such files: three looks, which are faster than a thread."""
        places = f"{workspace}/{AGENTS}", "/".join((str(workspace), *WORKSPACE_FOLDER)), f"{data_dir}/{DATA_FOLDER}"
        return not any(map(os.path.lexists, places))

    def files(self, workspace: Path) -> list[ReviewedFile]:
        """Return the files of the workspace that could be instructions. Blocks."""
        paths = (AGENTS, *skill_paths(workspace, WORKSPACE_FOLDER))
        found = (self._cache.read(workspace, path) for path in paths)
        return [self._reviewed(workspace, file) for file in found if file]

    async def decide(self, workspace: Path, path: str, digest: str, *, accept: bool, by: str) -> ReviewedFile | None:
        """Store a decision on the file with this digest; None if there is no such file.

        Raises DigestChanged, StoreFailed.
        """
        files = await asyncio.to_thread(self.files, workspace)
        file = next((one.file for one in files if one.file.path == path), None)
        if file is None:
            return None
        if file.problem or file.digest != digest:
            raise DigestChanged(file.problem or f"{path} has changed since: read it again, then decide.")
        async with self.changing:
            key = _key(workspace, path)
            decisions = {name: one for name, one in self._decisions.items() if name != key}
            decisions[key] = FileDecision(digest, file.text, accept, by, time.time())
            if len(decisions) > MOST_DECISIONS:
                del decisions[_dispensable(decisions)]
            if self._store:
                await self._store.write([StateRow(STATE, encode(decisions).decode())])
            self._decisions = decisions
        return self._reviewed(workspace, file)

    def _reviewed(self, workspace: Path, file: ProjectFile) -> ReviewedFile:
        known = self._decisions.get(_key(workspace, file.path))
        before = known.text if known else None
        if file.problem:
            return ReviewedFile(file, UNUSABLE, before)
        if known is None:
            return ReviewedFile(file, NEW)
        if known.digest != file.digest:
            return ReviewedFile(file, CHANGED, before)
        return ReviewedFile(file, ACCEPTED if known.accepted else DECLINED, before)

    def _trusted(self, data_dir: Path) -> list[ProjectFile]:
        """Return the skills of the data directory, which is the operator's."""
        files = (self._cache.read(data_dir, path) for path in skill_paths(data_dir, (DATA_FOLDER,)))
        return [file for file in files if file and not file.problem]


class FileCache:
    """Files as they were read last, while their stamps say that they are the same. May be used by any thread."""

    def __init__(self) -> None:
        self._read: dict[str, tuple[Stamp, ProjectFile]] = {}

    def read(self, root: Path, path: str) -> ProjectFile | None:
        """Return what `read_project_file` returns. Blocks."""
        try:
            found = os.lstat(place := f"{root}/{path}")
        except FileNotFoundError:  # nearly always: no folder on the way is opened for it
            return None
        except OSError:
            return read_project_file(root, path)
        stamp = stamp_of(found)
        known = self._read.get(place)
        if known and known[0] == stamp:
            return known[1]
        file = read_project_file(root, path)
        if file and not file.problem and is_settled(found):
            while len(self._read) >= MOST_CACHED:
                self._read.pop(next(iter(self._read)), None)
            self._read[place] = stamp, file
        return file


def _key(workspace: Path, path: str) -> str:
    return json.dumps(str(workspace.absolute() / path))[1:-1]  # names may hold what is no text


def _dispensable(decisions: Iterable[str]) -> str:
    """Return the oldest of the workspace that has the most: no workspace loses decisions to another."""
    skills = "/".join(("", *WORKSPACE_FOLDER, ""))
    folders = {key: key.removesuffix(f"/{AGENTS}").partition(skills)[0] for key in decisions}
    [(most, _)] = Counter(folders.values()).most_common(1)
    return next(key for key, folder in folders.items() if folder == most)


def read_project_file(workspace: Path, path: str) -> ProjectFile | None:
    """Read a file of the workspace, through no link; None if it does not exist. Its `path` is made of plain names."""
    try:
        with regular_file(workspace, tuple(path.split("/"))) as opened, open(opened, "rb", closefd=False) as file:
            data = file.read(MOST_BYTES + 1)
        text = visible(data.decode("utf-8-sig").replace("\r\n", "\n")).strip()
    except ToolFailed as failure:
        missing = isinstance(failure.__cause__, FileNotFoundError)
        return None if missing else ProjectFile(path, problem=str(failure))
    except OSError as error:
        return ProjectFile(path, problem=f"{path} cannot be read: {os.strerror(error.errno or 0)}.")
    except UnicodeDecodeError as error:
        return ProjectFile(path, problem=f"{path} is not valid UTF-8 at byte {error.start}.")
    if len(data) > MOST_BYTES or len(text) > MOST:
        return ProjectFile(path, problem=f"{path} is too long: at most {MOST:,} characters can be used.")
    return ProjectFile(path, text, hashlib.sha256(text.encode()).hexdigest()) if text else None
