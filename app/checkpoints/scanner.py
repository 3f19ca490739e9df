"""A look at a workspace: each file, link and folder in it; only what is new or may have changed is read.

Folders are opened one in the other without following links, so that nothing outside is read, whatever a command that
still runs does meanwhile. Places that the owner's programs obey (`owner_run_paths`), a repository's own files among
them, are passed by: no undo shall ever touch them. That they are there is noted, so that it is known if one goes.
"""

from __future__ import annotations

import errno
import os
import re
import stat
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from fnmatch import translate
from hashlib import sha256

from msgspec import Struct, field

from app.storage.checkpoints import FILE, FOLDER, LEFT_OUT, LINK, Entries, Entry
from tools.base.patterns import lazy_pattern
from tools.sandbox.owner_run_paths import PLACES
from tools.sandbox.placeholders import has_mark

MODE = 0o777  # the bits of a mode that are kept
DEEPEST = 128  # folders in each other; each is held open
BATCH = 8 << 20  # bytes of contents that are stored at a time
TICK_NS = 20_000_000  # a change within one tick of a file system's clock may leave the times of a file as they are
LOOK_EVERY = 64  # entries between two looks at the clock
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_REPLACED = {errno.ELOOP, errno.ENXIO}  # by a link, by a socket
_PROTECTED = lazy_pattern("|".join(translate(place.name) for place in PLACES), re.IGNORECASE)

KeepContents = Callable[[list[tuple[bytes, bytes]]], None]


class Unscannable(Exception):
    """The workspace is beyond a limit, or cannot be read. The message names the limit or the error."""


class ScanLimits(Struct, frozen=True):
    """Bounds of a look at a workspace. Files of more than `file_bytes` are left out."""

    files: int = 50_000
    bytes: int = 1 << 30
    file_bytes: int = 16 << 20
    seconds: float = 5.0


class Scan(Struct):
    """One look. `known` is the last one, `keep` stores contents that are new, but none in which `is_secret` finds one.

    `entries` are complete after `run`; if that raises Unscannable, they are as far as it came.
    """

    known: Entries
    keep: KeepContents
    limits: ScanLimits = field(default_factory=ScanLimits)
    passed_by: Collection[str] = ()  # names in the workspace itself
    is_secret: Callable[[bytes], bool] = lambda _: False
    entries: dict[bytes, Entry] = field(default_factory=dict)
    has_read: bool = False  # something was read, so that the entries differ at least in their times
    _contents: list[tuple[bytes, bytes]] = field(default_factory=list)
    _held: int = 0
    _size: int = 0
    _device: int = 0
    _until: float = 0.0

    def run(self, workspace: str) -> None:
        """Look at everything. Raises Unscannable, and what `keep` raises."""
        self._until = time.monotonic() + self.limits.seconds
        try:
            opened = os.open(workspace, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise Unscannable(f"the workspace cannot be read: {error.strerror}") from error
        try:
            self._device = os.fstat(opened).st_dev
            self._folder(opened, b"", 0)
        except OSError as error:
            raise Unscannable(f"something in it cannot be read: {error.strerror}") from error
        finally:
            os.close(opened)
            self._store()

    def _folder(self, opened: int, prefix: bytes, depth: int) -> None:
        if depth > DEEPEST:
            raise Unscannable(f"its folders are more than {DEEPEST} deep")
        try:
            with os.scandir(opened) as listed:
                items = list(listed)
        except OSError as error:
            raise Unscannable(f"a folder of it cannot be read: {error.strerror}") from error
        if self.is_secret(os.fsencode("\n".join(item.name for item in items))):
            items = [item for item in items if not self.is_secret(os.fsencode(item.name))]
        for item in items:
            if depth == 0 and item.name in self.passed_by:
                continue
            with suppress(FileNotFoundError):  # removed since
                path, found = prefix + os.fsencode(item.name), _status(item)
                if found is None:
                    self._add(path, Entry(LEFT_OUT, 0))
                elif _PROTECTED.match(item.name.rstrip(". ")):
                    self._pass_by(path, found)
                else:
                    self._item(opened, item.name, path, found, depth)

    def _pass_by(self, path: bytes, found: os.stat_result) -> None:
        """Note that something is there into which no look goes, unless it only stands there while a command runs."""
        self._count()
        if not has_mark(found):
            self._add(path, Entry(LEFT_OUT, found.st_mode & MODE, inode=found.st_ino))

    def _item(self, parent: int, name: str, path: bytes, found: os.stat_result, depth: int) -> None:
        self._count()
        kind = stat.S_IFMT(found.st_mode)
        if kind == stat.S_IFREG:
            self._file(parent, name, path, found)
        elif kind == stat.S_IFLNK:
            target = os.fsencode(os.readlink(name, dir_fd=parent))
            if self.is_secret(target):
                return
            self._add(path, Entry(LINK, 0, len(target), self._keep(path, target)))
        elif kind == stat.S_IFDIR and found.st_dev != self._device:
            self._pass_by(path, found)
        elif kind == stat.S_IFDIR:
            try:
                opened = os.open(name, _DIRECTORY, dir_fd=parent)
            except PermissionError:
                self._pass_by(path, found)  # its content is out of reach for the server, and so for an undo
                return
            except NotADirectoryError:
                return  # replaced since
            self.entries[path] = Entry(FOLDER, found.st_mode & MODE)
            try:
                self._folder(opened, path + b"/", depth + 1)
            finally:
                os.close(opened)

    def _count(self) -> None:
        number = len(self.entries)
        if number >= self.limits.files:
            raise Unscannable(f"it holds more than {self.limits.files:,} files")
        if number % LOOK_EVERY == 0 and time.monotonic() > self._until:
            raise Unscannable(f"reading it took more than {self.limits.seconds:g} s")

    def _file(self, parent: int, name: str, path: bytes, found: os.stat_result) -> None:
        mode, size, known = found.st_mode & MODE, found.st_size, self.known.get(path)
        if size > self.limits.file_bytes:
            self._add(path, _left_out(found))
            return
        self._size += size
        if self._size > self.limits.bytes:
            raise Unscannable(f"it holds more than {self.limits.bytes >> 20:,} MB")
        if known and known.kind == FILE and known.inode and _seen(known) == (mode, size, *times_of(found)):
            self.entries[path] = known
            return
        self.has_read = True
        try:
            data, found = _content(parent, name, self.limits.file_bytes)
        except PermissionError:
            self._add(path, _left_out(found))
            return
        if len(data) > self.limits.file_bytes or self.is_secret(data):  # it may have grown meanwhile
            self._add(path, _left_out(found))
            return
        times = times_of(found) if _is_settled(found) and len(data) == found.st_size else (0, 0, 0)
        self._add(path, Entry(FILE, found.st_mode & MODE, len(data), self._keep(path, data), *times))

    def _add(self, path: bytes, entry: Entry) -> None:
        self.has_read = self.has_read or self.known.get(path) != entry
        self.entries[path] = entry

    def _keep(self, path: bytes, data: bytes) -> bytes:
        """Return the digest of the content, which is kept if the last look did not see it there."""
        digest, known = sha256(data).digest(), self.known.get(path)
        if known is None or known.digest != digest:
            self._contents.append((digest, data))
            self._held += len(data)
            if self._held > BATCH:
                self._store()
        return digest

    def _store(self) -> None:
        if self._contents:
            contents, self._contents, self._held = self._contents, [], 0
            self.keep(contents)


def _status(item: os.DirEntry[str]) -> os.stat_result | None:
    """Return the status of an entry itself, None if the folder tells no more than names. Raises FileNotFoundError."""
    try:
        return item.stat(follow_symlinks=False)
    except PermissionError:
        return None


def _left_out(found: os.stat_result) -> Entry:
    return Entry(LEFT_OUT, found.st_mode & MODE, found.st_size, b"", *times_of(found))


def times_of(found: os.stat_result) -> tuple[int, int, int]:
    return found.st_ino, found.st_mtime_ns, found.st_ctime_ns


def _seen(entry: Entry) -> tuple[int, ...]:
    return entry.mode, entry.size, entry.inode, entry.modified, entry.changed


def _is_settled(found: os.stat_result) -> bool:
    """Return False if a change from now on could leave the file's times as they are."""
    return max(found.st_mtime_ns, found.st_ctime_ns) < time.time_ns() - TICK_NS


def _content(parent: int, name: str, limit: int) -> tuple[bytes, os.stat_result]:
    """Return the content of a file and its status before it was read. Raises OSError: FileNotFoundError if it went."""
    try:
        opened = os.open(name, _READ, dir_fd=parent)
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


def differences(old: Entries, new: Mapping[bytes, Entry]) -> list[tuple[bytes, Entry | None, Entry | None]]:
    """Return what differs between two looks, as path, before and after; not what one of them could not look into."""
    gone = [(path, entry, None) for path, entry in old.items() if path not in new and not _is_hidden(path, new)]
    other: list[tuple[bytes, Entry | None, Entry | None]] = []
    for path, entry in new.items():
        before = old.get(path)
        if before is not entry and not entry.is_same(before) and not (before is None and _is_hidden(path, old)):
            other.append((path, before, entry))
    return [*gone, *other]


def _is_hidden(path: bytes, entries: Entries) -> bool:
    """Return whether a path lies below what was passed by."""
    while b"/" in path:
        path = path.rpartition(b"/")[0]
        if (above := entries.get(path)) is not None:
            return above.kind == LEFT_OUT
    return False
