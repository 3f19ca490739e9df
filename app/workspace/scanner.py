"""A look at a workspace: each file, link and folder in it, with its size, inode and times.

There is one look before a call that may write and one after it. What it reports (`changes`) and what an undo restores
(`app.checkpoints`) are both derived from these two. For an undo the contents are kept as well: with `keep`, files that
are new or whose inode, size or times differ from those of the last look are read.

Folders are opened one below the other without following links, so that nothing outside is looked at, whatever a command
that still runs does meanwhile; nearest first, so that a look which reaches a limit has seen the upper folders.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from collections import deque
from collections.abc import Callable, Collection
from contextlib import suppress
from hashlib import sha256
from itertools import islice
from pathlib import Path

from msgspec import Struct, field

from app.storage.checkpoints import FILE, FOLDER, LEFT_OUT, LINK, SKIPPED, Entries, Entry
from app.workspace.open_folders import OpenFolders
from app.workspace.skipped import HEAVY, is_protected
from tools.base.file_stamps import is_settled
from tools.base.workspace import READ
from tools.sandbox.placeholders import has_mark

MODE = 0o777  # the bits of a mode that are kept
DEEPEST = 128  # folders in each other
BATCH = 8 << 20  # bytes of contents that are stored at a time
CHECK_EVERY = 64  # entries between two looks at the clock
_REPLACED = {errno.ELOOP, errno.ENXIO}  # by a link, by a socket

KeepContents = Callable[[list[tuple[bytes, bytes]]], None]
Parts = tuple[str, ...]


class ScanLimits(Struct, frozen=True):
    """Bounds of a look at a workspace. Files of more than `file_bytes` are left out of checkpoints."""

    files: int = 50_000
    bytes: int = 1 << 30
    file_bytes: int = 16 << 20
    seconds: float = 5.0


class Look(Struct, frozen=True):
    """The entries of a workspace. `is_whole`: all were seen; `unfit`: why it is no checkpoint, as a clause."""

    entries: Entries = field(default_factory=dict)
    began_ns: int = 0
    is_whole: bool = True
    unfit: str = ""
    has_read: bool = False  # an entry differs from the known one, at least in its times


class Scanner(Struct):
    """One look. `known` is the last one, `keep` stores contents that are new, but none in which `is_secret` finds one.

    `passed_by` are names in the workspace itself.
    """

    known: Entries
    keep: KeepContents | None = None
    limits: ScanLimits = field(default_factory=ScanLimits)
    passed_by: Collection[str] = ()
    is_secret: Callable[[bytes], bool] = lambda _: False
    _entries: dict[bytes, Entry] = field(default_factory=dict)
    _unfit: str = ""
    _is_whole: bool = True
    _has_read: bool = False
    _contents: list[tuple[bytes, bytes]] = field(default_factory=list)
    _held: int = 0
    _size: int = 0
    _device: int = 0
    _until: float = 0.0

    def run(self, workspace: Path | str) -> Look:
        """Look at everything within the limits. Blocks; raises what `keep` raises."""
        began = time.time_ns()
        self._until = time.monotonic() + self.limits.seconds
        try:
            with OpenFolders(workspace) as folders:
                self._device = os.fstat(folders.root).st_dev
                self._walk(folders)
        except OSError as error:
            self._stop(f"something in it cannot be read: {error.strerror}")
        finally:
            self._store()
        return Look(self._entries, began, self._is_whole, self._unfit, self._has_read)

    def _stop(self, why: str) -> None:
        """End the look before everything is seen."""
        self._is_whole, self._unfit = False, self._unfit or why

    def _read_no_more(self, why: str) -> None:
        """Look on without contents."""
        self._store()
        self.keep, self._unfit = None, self._unfit or why

    def _walk(self, folders: OpenFolders) -> None:
        waiting: deque[Parts] = deque([()])
        while waiting and len(self._entries) <= self.limits.files:
            parts = waiting.popleft()
            path = b"/".join(map(os.fsencode, parts))
            try:
                with folders.open(parts) as opened:
                    inner = self._folder(opened, path + b"/" if parts else b"", parts)
            except PermissionError:  # out of reach for the server, and so for an undo
                self._add(path, Entry(LEFT_OUT, self._entries[path].mode))
                continue
            except (FileNotFoundError, NotADirectoryError):  # replaced since
                continue
            if inner and len(parts) >= DEEPEST:
                self._stop(f"its folders are more than {DEEPEST} deep")
            else:
                waiting += [(*parts, name) for name in inner]
            if time.monotonic() > self._until and not self._has_time():
                return
        if len(self._entries) > self.limits.files:
            self._stop(f"it holds more than {self.limits.files:,} files")

    def _has_time(self) -> bool:
        """Give a look that has read for too long the same time again, to see without reading."""
        why = f"reading it took more than {self.limits.seconds:g} s"
        if self.keep is None:
            self._stop(why)
            return False
        self._read_no_more(why)
        self._until += self.limits.seconds
        return True

    def _folder(self, opened: int, prefix: bytes, parts: Parts) -> list[str]:
        """Add the entries of an open folder; return the names of the folders to look into."""
        inner = list[str]()
        most = self.limits.files - len(self._entries) + 1
        with os.scandir(opened) as listed:
            items = list(islice(listed, most))
        if self.is_secret(os.fsencode("\n".join(item.name for item in items))):
            items = [item for item in items if not self.is_secret(os.fsencode(item.name))]
        for number, item in enumerate(items):
            name = item.name
            if not parts and name in self.passed_by:
                continue
            path = prefix + os.fsencode(name)
            try:
                found = item.stat(follow_symlinks=False)
            except FileNotFoundError:  # removed since
                continue
            except PermissionError:  # the folder may be listed and not entered
                self._add(path, Entry(LEFT_OUT, 0))
                continue
            known = self.known.get(path)
            if known is not None and self._is_known(known, found):
                self._entries[path] = known
                self._count(known.size)
                continue
            with suppress(FileNotFoundError):
                if self._item(opened, name, path, found):
                    inner.append(name)
            if number % CHECK_EVERY == 0 and time.monotonic() > self._until and not self._has_time():
                break
        return inner

    def _is_known(self, known: Entry, found: os.stat_result) -> bool:
        """Return True for a file that is as it was at the last look; the answer for nearly all."""
        return (
            known.kind == FILE
            and known.changed == found.st_ctime_ns
            and known.modified == found.st_mtime_ns
            and known.inode == found.st_ino
            and known.size == found.st_size
            and known.mode == found.st_mode & MODE
            and stat.S_ISREG(found.st_mode)
            and (self.keep is None or (known.is_settled and known.digest != b""))
        )

    def _item(self, parent: int, name: str, path: bytes, found: os.stat_result) -> bool:
        """Add a new or changed entry; return True for a folder to look into."""
        kind = stat.S_IFMT(found.st_mode)
        if is_protected(name):
            self._pass_by(path, found)
        elif kind == stat.S_IFREG:
            self._add(path, self._file(parent, name, path, found))
        elif kind == stat.S_IFLNK:
            self._add_link(path, os.fsencode(os.readlink(name, dir_fd=parent)), found)
        elif kind == stat.S_IFDIR and found.st_dev != self._device:
            self._pass_by(path, found)
        elif kind == stat.S_IFDIR:
            if name in HEAVY:
                self._add(path, Entry(SKIPPED, found.st_mode & MODE, inode=found.st_ino))
                return False
            self._add(path, Entry(FOLDER, found.st_mode & MODE))
            return True
        return False

    def _pass_by(self, path: bytes, found: os.stat_result) -> None:
        """Note what is protected: a file with its times, a folder only as there, unless a command holds its place."""
        if stat.S_ISREG(found.st_mode):
            self._add(path, _entry(LEFT_OUT, found))
        elif not has_mark(found):
            self._add(path, Entry(LEFT_OUT, found.st_mode & MODE, inode=found.st_ino))

    def _add_link(self, path: bytes, target: bytes, found: os.stat_result) -> None:
        if self.is_secret(target):
            return
        digest = self._keep(path, target) if self.keep else b""
        self._add(path, Entry(LINK, 0, len(target), digest, *times_of(found)))

    def _add(self, path: bytes, entry: Entry) -> None:
        known = self.known.get(path)
        self._has_read = self._has_read or known != entry
        self._entries[path] = entry if known != entry or known is None else known

    def _file(self, parent: int, name: str, path: bytes, found: os.stat_result) -> Entry:
        if found.st_size > self.limits.file_bytes:
            return _entry(LEFT_OUT, found)
        self._count(found.st_size)
        if self.keep is None:
            return _entry(FILE, found)
        try:
            data, found = _content(parent, name, self.limits.file_bytes)
        except PermissionError:
            return _entry(LEFT_OUT, found)
        if len(data) > self.limits.file_bytes or self.is_secret(data):  # it may have grown meanwhile
            return _entry(LEFT_OUT, found)
        settled = is_settled(found) and len(data) == found.st_size
        digest = self._keep(path, data)
        return Entry(FILE, found.st_mode & MODE, len(data), digest, *times_of(found), is_settled=settled)

    def _count(self, size: int) -> None:
        self._size += size
        if self._size > self.limits.bytes and self.keep:
            self._read_no_more(f"it holds more than {self.limits.bytes >> 20:,} MB")

    def _keep(self, path: bytes, data: bytes) -> bytes:
        """Return the digest of the content, which is kept if the last look did not see it there."""
        digest = sha256(data).digest()
        known = self.known.get(path)
        if known is None or known.digest != digest:
            self._contents.append((digest, data))
            self._held += len(data)
            if self._held > BATCH:
                self._store()
        return digest

    def _store(self) -> None:
        if self._contents and self.keep:
            contents, self._contents, self._held = self._contents, [], 0
            self.keep(contents)


def times_of(found: os.stat_result) -> tuple[int, int, int]:
    return found.st_ino, found.st_mtime_ns, found.st_ctime_ns


def _entry(kind: str, found: os.stat_result) -> Entry:
    return Entry(kind, found.st_mode & MODE, found.st_size, b"", *times_of(found))


def _content(parent: int, name: str, limit: int) -> tuple[bytes, os.stat_result]:
    """Return the content of a file and its status before it was read. Raises OSError: FileNotFoundError if it went."""
    try:
        opened = os.open(name, READ, dir_fd=parent)
    except OSError as error:
        if error.errno in _REPLACED:
            raise FileNotFoundError(name) from error
        raise  # a file that cannot be read now would count as removed, and later as created
    with os.fdopen(opened, "rb", buffering=0) as file:
        found = os.fstat(opened)
        if not stat.S_ISREG(found.st_mode):
            raise FileNotFoundError(name)
        data = bytearray()
        while len(data) <= limit and (block := file.read(min(1 << 20, limit + 1 - len(data)))):
            data += block
        return bytes(data), found


def differences(
    old: Entries, new: Entries, is_same: Callable[[Entry, Entry | None], bool] = Entry.is_same
) -> list[tuple[bytes, Entry | None, Entry | None]]:
    """Return what differs between two looks, as path, before and after; not what one of them could not look into."""
    gone = [(path, entry, None) for path, entry in old.items() if path not in new and not _is_hidden(path, new)]
    other: list[tuple[bytes, Entry | None, Entry | None]] = []
    for path, entry in new.items():
        before = old.get(path)
        if before is not entry and not is_same(entry, before) and not (before is None and _is_hidden(path, old)):
            other.append((path, before, entry))
    return [*gone, *other]


def _is_hidden(path: bytes, entries: Entries) -> bool:
    """Return whether a path lies below what was passed by."""
    while b"/" in path:
        path = path.rpartition(b"/")[0]
        if (above := entries.get(path)) is not None:
            return not above.can_restore
    return False
