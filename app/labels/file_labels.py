"""The labels of files: by the patterns of the settings, and of what calls of labelled conversations have written.

All paths are relative to the workspace of admins, in which the folders of the other principals lie. While a call of a
labelled conversation may write, its whole workspace has its labels: so nothing can be read that is not yet looked at,
and after a kill of the server in the middle of the call the labels stay there.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Sequence
from pathlib import Path

from app.core.labels import NO_LABELS, LabelPolicy, Labels, joined
from app.labels.paths import LabelledPaths, ancestors, normalised
from app.storage.changes import Change
from app.storage.checkpoints import LEFT_OUT, SKIPPED, Entries, Entry
from app.storage.labels import CallLabelsEnded, FileLabel, LabelStore
from tools.base.outcome import ToolFailed
from tools.base.workspace import OwnFolder, inside

MOST_FILES = 20_000  # with labels of their own; with more the whole workspace has them
MOST_NAMES = 20_000  # of a folder


class FileLabels:
    """The labels of all files. Reads block."""

    def __init__(self, policy: LabelPolicy, root: Path) -> None:
        self.policy = policy
        self.root = root
        self._paths = LabelledPaths(root, policy.sources)
        self._files: dict[str, Labels] = {}
        self._elsewhere: dict[str, Labels] = {}  # by calls of other servers, or of one that was killed
        self._writing: dict[str, tuple[str, Labels]] = {}  # call -> its workspace, its labels

    async def load(self, store: LabelStore) -> None:
        """Read what was written before this start. Raises StoreFailed."""
        rows = await store.file_labels(str(self.root))
        self._files = _by_path(row for row in rows if not row.call)
        self._elsewhere = _by_path(row for row in rows if row.call)

    async def reload(self, store: LabelStore) -> None:
        """Read what other servers have written, too. Raises StoreFailed."""
        self._elsewhere = _by_path(await store.file_labels(str(self.root)))

    def folder(self, workspace: Path) -> str:
        """Return the path of a principal's workspace, empty for the root."""
        root = self.root.resolve() if isinstance(workspace, OwnFolder) else self.root
        path = os.path.relpath(workspace, root)
        return "" if path == "." else path

    def of_path(self, workspace: Path, path: str) -> Labels:
        """Return the labels of a file or folder as the file tools name it."""
        try:
            parts = inside(workspace, path)
        except ToolFailed:
            return NO_LABELS  # the tools refuse it, too
        return self._of_parts(workspace, parts)

    def _of_parts(self, workspace: Path, parts: Sequence[str]) -> Labels:
        place = self._place(workspace, parts)
        labels = self._of_name(place)
        try:
            found = os.lstat(self.root / place)
        except (OSError, ValueError):
            return labels
        # A file with several names may have a labelled one among them.
        return joined(labels, self.present(workspace)) if _has_names(found) else labels

    def below(self, workspace: Path, path: str) -> Labels:
        """Return the labels of all files that there are in a folder, at any depth."""
        try:
            return self.present(workspace.joinpath(*inside(workspace, path)))
        except ToolFailed:
            return NO_LABELS

    def of_folder(self, workspace: Path, path: str) -> Labels:
        """Return the labels of the names that a listing of a folder shows."""
        try:
            parts = inside(workspace, path)
            names = self._names(workspace.joinpath(*parts))
        except (ToolFailed, OSError):
            return self.of_path(workspace, path)
        if names is None:
            return self.present(workspace)
        found = (self._of_name(self._place(workspace, (*parts, name))) for name in names)
        return joined(self._of_parts(workspace, parts), *found)

    def _place(self, workspace: Path, parts: Sequence[str]) -> str:
        return "/".join((*filter(None, (self.folder(workspace),)), *parts))

    def _of_name(self, place: str) -> Labels:
        return joined(self._paths.labels(place), self._of_rows(place))

    def _names(self, folder: Path) -> list[str] | None:
        if not folder.is_dir():
            return []
        names = [entry.name for entry in folder.iterdir()]
        return names if len(names) <= MOST_NAMES else None

    def is_plain(self, workspace: Path, path: str) -> bool:
        """Return True for a path below the workspace that goes through no link."""
        try:
            parts = inside(workspace, path)
            return not any(_is_link(workspace.joinpath(*parts[: at + 1])) for at in range(len(parts)))
        except (ToolFailed, ValueError):
            return False

    def present(self, workspace: Path) -> Labels:
        """Return the labels of all files that there are in a workspace, or in a folder of one."""
        folder = self.folder(workspace)
        prefix = normalised(f"{folder}/") if folder else ""
        every = [*self._files.items(), *self._elsewhere.items()]
        rows = (labels for path, labels in every if path.startswith(prefix))
        return joined(self._paths.present(folder), self._of_rows(folder), *rows)

    def _of_rows(self, place: str) -> Labels:
        """Return the labels that a path, or a folder that it lies in, has by what was written."""
        above = set(ancestors(normalised(place)))
        writing = (labels for folder, labels in list(self._writing.values()) if folder in above)
        return joined(*map(self._of_row, above), *writing)

    def _of_row(self, path: str) -> Labels:
        return self._files.get(path, NO_LABELS) | self._elsewhere.get(path, NO_LABELS)

    def label_files(self, workspace: Path, paths: Iterable[str], labels: Labels) -> list[Change]:
        """Give files of a workspace these labels; return the changes to store. An empty path is the whole workspace."""
        folder = self.folder(workspace)
        changes = list[Change]()
        wanted = [normalised("/".join(filter(None, (folder, path)))) for path in paths]
        if len(self._files) + len(wanted) > MOST_FILES:
            wanted = [normalised(folder)]
        for place in wanted:
            new = labels - self._of_rows_alone(place)
            if new:
                self._files[place] = joined(self._files.get(place, ()), new)
                changes += [FileLabel(str(self.root), place, label) for label in sorted(new)]
        return changes

    def _of_rows_alone(self, place: str) -> Labels:
        return joined(*(self._files.get(one, NO_LABELS) for one in ancestors(place)))

    def begin_write(self, workspace: Path, call: str, labels: Labels) -> list[Change]:
        """Let the whole workspace have these labels while the call may write."""
        folder = normalised(self.folder(workspace))
        self._writing[call] = folder, labels
        return [FileLabel(str(self.root), folder, label, call) for label in sorted(labels)]

    def end_write(self, call: str) -> list[Change]:
        """End that: what the call has written has its labels by now."""
        return [CallLabelsEnded(call)] if self._writing.pop(call, None) else []


def _by_path(rows: Iterable[FileLabel]) -> dict[str, Labels]:
    found: dict[str, Labels] = {}
    for row in rows:
        found[row.path] = joined(found.get(row.path, ()), (row.label,))
    return found


def written(before: Entries, after: Entries) -> list[str]:
    """Return the paths that may have been written between two looks.

    A folder that was not looked into counts as written, and what became visible since the first look, too.
    """
    changed = (path for path, entry in after.items() if _is_hidden_folder(entry) or _differs(entry, before.get(path)))
    return [os.fsdecode(path) for path in changed]


def _is_hidden_folder(entry: Entry) -> bool:
    return entry.kind == SKIPPED or (entry.kind == LEFT_OUT and entry.changed == 0)


def _differs(entry: Entry, before: Entry | None) -> bool:
    """Return True for a file or link that is new or may have been written; a folder itself holds nothing."""
    return entry.changed != 0 and (before is None or _stamp(entry) != _stamp(before))


def _stamp(entry: Entry) -> tuple[str, int, int, int, int]:
    return entry.kind, entry.size, entry.inode, entry.modified, entry.changed


def _has_names(found: os.stat_result) -> bool:
    return stat.S_ISREG(found.st_mode) and found.st_nlink > 1


def _is_link(path: Path) -> bool:
    try:
        return stat.S_ISLNK(os.lstat(path).st_mode)
    except OSError:
        return False
