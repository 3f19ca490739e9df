"""Checkpoints: changes of workspaces by runs, and the contents from before, in a store of their own.

It is a second file beside the database, because it holds the contents of workspaces: its backup, its size and its loss
are another matter. All methods block and may be called from any thread.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Protocol

from msgspec import Struct

FILE, LINK, FOLDER, LEFT_OUT, SKIPPED = "file", "link", "folder", "left out", "skipped"  # kinds of entries
OPEN, KEPT, UNAVAILABLE, UNDOING, UNDONE = "open", "kept", "unavailable", "undoing", "undone"  # states


class Entry(Struct, frozen=True, array_like=True):
    """A file, link or folder. `digest` is that of the content, or of a link's target.

    What is `LEFT_OUT` (too large, protected, unreadable, or with a secret in it), a `SKIPPED` folder (programs make it
    again), and what a look has not read have none. A file is read again if its `inode`, `modified` or `changed` differ,
    or if it was not settled: then it may have been changed since without them.
    """

    kind: str
    mode: int
    size: int = 0
    digest: bytes = b""
    inode: int = 0
    modified: int = 0
    changed: int = 0
    is_settled: bool = True

    def is_same(self, other: Entry | None) -> bool:
        """Return True if the other is the same thing, as far as it can be restored; else as far as it is known."""
        if other is None or (self.kind, self.mode) != (other.kind, other.mode):
            return False
        if self.kind == FOLDER or (self.digest and other.digest):
            return self.digest == other.digest
        return (self.size, self.inode, self.modified) == (other.size, other.inode, other.modified)

    @property
    def can_restore(self) -> bool:
        return self.kind not in (LEFT_OUT, SKIPPED)


Entries = Mapping[bytes, Entry]  # by their paths in the workspace


class Changed(Struct, frozen=True):
    """A path before and after a run; None is nothing. `shared`: something else may have changed it meanwhile."""

    path: bytes
    before: Entry | None
    after: Entry | None
    shared: bool = False


class CheckpointRow(Struct, frozen=True):
    """A run that has changed a workspace. `reported`: the model knows that it was undone."""

    run: str
    session: str
    principal: str
    workspace: str
    created: float
    state: str = OPEN
    note: str = ""
    undone: float | None = None
    undone_by: str = ""
    reported: bool = False


class CheckpointStore(Protocol):
    """Every method raises StoreFailed."""

    def entries(self, workspace: str) -> Entries | None:
        """Return the workspace as it was last seen; None if it never was."""

    def put_contents(self, contents: Sequence[tuple[bytes, bytes]]) -> None:
        """Store contents with their digests; nothing refers to them until `put_entries`."""

    def content(self, digest: bytes) -> bytes:
        """Return a stored content. Raises StoreFailed if it is missing."""

    def put(
        self,
        rows: Sequence[CheckpointRow] = (),
        changes: Mapping[str, Iterable[Changed]] | None = None,
        entries: tuple[str, Entries] | None = None,
    ) -> None:
        """Store rows, all changes of runs, and the entries of a workspace, in one transaction."""

    def row(self, run: str) -> CheckpointRow | None: ...

    def rows(self, *states: str) -> list[CheckpointRow]:
        """Return the checkpoints in these states, oldest first."""

    def changes(self, run: str) -> list[Changed]:
        """Return the changes of a run, by path."""

    def runs_that_changed(self, workspace: str, path: bytes, since: float) -> list[str]:
        """Return the runs begun after that time that have changed this path, oldest first."""

    def forget(self, runs: Collection[str]) -> None: ...

    def forget_workspace(self, workspace: str) -> None: ...

    def workspaces(self) -> list[str]:
        """Return the workspaces that were looked at."""

    def size(self) -> int:
        """Return the bytes of all contents."""

    def sweep(self) -> None:
        """Delete the contents that nothing refers to."""

    def vacuum(self) -> None:
        """Rewrite the file: what was deleted is still in the free parts of its pages."""

    def close(self) -> None: ...
