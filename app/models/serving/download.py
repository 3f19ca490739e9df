"""Download of a model's files: resumed after any end, bounded in size and disk, checked before it gets its name.

What has come is `NAME.part`, locked while a process writes it; `NAME.part.json` has the source and the ETag that the
next request names in `If-Range`. https://www.rfc-editor.org/rfc/rfc9110#name-range-requests
"""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Literal

import httpx2
import msgspec
from msgspec import Struct

from app.models.serving.catalogue import name_of
from app.models.serving.gguf import MAGIC, open_model, read_header
from app.models.serving.hub import HubClient, Plan, RemoteFile, TryAgain, check_magic
from app.models.serving.refusals import UnfitFile
from tools.base.patterns import lazy_pattern
from tools.web.bodies import reason_of

PART, NOTES = ".part", ".part.json"
HASHED_AT_ONCE = 8 << 20
_RANGE = lazy_pattern(r"bytes (\d{1,15})-\d{1,15}/(?:(\d{1,15})|\*)")


class DownloadLimits(Struct, frozen=True):
    """Limits of one model. `attempts` are those in a row of which none brought anything."""

    most_bytes: int
    seconds: float = 86_400.0
    attempts: int = 6
    pause_s: float = 1.0
    reserve: int = 512 << 20  # of the disk, for everything else
    look_bytes: int = 64 << 20  # the free space is looked at again after so many
    free: Callable[[Path], int] = lambda folder: shutil.disk_usage(folder).free


class Download(Struct, kw_only=True):
    """A download and how far it is. `checked` says by what: sha256, or only size and format.

    `serve` is set by any request for it: the model is served when it is there.
    """

    name: str
    source: str
    folder: str
    serve: bool = False
    state: Literal["downloading", "checking", "done", "failed", "interrupted"] = "downloading"
    bytes: int = 0
    total: int | None = None
    checked: str = ""
    problem: str = ""
    model: str = ""
    received: int = 0
    began: float = msgspec.field(default_factory=time.monotonic)

    def fields(self) -> dict[str, Any]:
        """Return it for clients, with bytes a second and the seconds that are left."""
        speed = round(self.received / max(time.monotonic() - self.began, 0.1)) if self.state == "downloading" else None
        own = {name: getattr(self, name) or None for name in ("total", "checked", "problem", "model")}
        left = round((self.total - self.bytes) / speed) if self.total and speed else None
        named = {"name": self.name, "source": self.source, "state": self.state, "bytes": self.bytes}
        return named | own | {"speed": speed, "left_s": left}


class _Notes(Struct):
    """Facts about a part file, kept beside it."""

    source: str = ""
    etag: str = ""


def _read_notes(path: Path) -> _Notes:
    try:
        return msgspec.json.decode(path.read_bytes(), type=_Notes)
    except (OSError, msgspec.DecodeError):
        return _Notes()


def interrupted(folder: Path) -> Iterator[Download]:
    """The downloads that a process has left behind."""
    for notes in sorted(folder.glob(f"*/*{NOTES}")):
        part, source = notes.with_suffix(""), _read_notes(notes).source
        if source and part.exists():
            download = Download(name=name_of(Path(part.stem)), source=source, folder=part.parent.name)
            yield msgspec.structs.replace(download, state="interrupted", bytes=part.stat().st_size)


def discard(folder: Path, download: Download) -> None:
    """Delete what has come of a download."""
    for notes in (folder / download.folder).glob(f"*{NOTES}"):
        if _read_notes(notes).source == download.source:
            notes.with_suffix("").unlink(missing_ok=True)
            notes.unlink()


async def fetch(client: HubClient, plan: Plan, folder: Path, limits: DownloadLimits, download: Download) -> Path:
    """Fetch the files of a plan; return the first. Raises UnfitFile; what has come stays for the next time."""
    where = folder / plan.folder
    download.total = plan.size
    try:
        for one in (folder, where):
            one.mkdir(mode=0o700, parents=True, exist_ok=True)
        async with asyncio.timeout(limits.seconds):
            for file in plan.files:
                await _Transfer(client, file, where, limits, download).run()
    except TimeoutError:
        raise UnfitFile(f"{plan.name} was not there after {limits.seconds:g} s. Start it again to go on.") from None
    except OSError as error:
        raise UnfitFile(f"{where} cannot be written ({error.strerror}). Mend that, and start again to go on.") from None
    files = [where / one.name for one in plan.files]
    await asyncio.to_thread(_check_header, files)
    return files[0]


def _check_header(files: Sequence[Path]) -> None:
    """Delete the files of a model whose header is unfit: they would come again as they are. Raises UnfitFile."""
    with open_model(files[0]):  # one that cannot be read now may be whole
        try:
            read_header(files[0])
        except UnfitFile as unfit:
            for file in files:
                file.unlink(missing_ok=True)
            raise UnfitFile(f"{unfit} What was downloaded is deleted.") from None


class _Transfer:
    """One file of a download."""

    def __init__(
        self, client: HubClient, file: RemoteFile, where: Path, limits: DownloadLimits, download: Download
    ) -> None:
        self._client, self._file, self._limits, self._download = client, file, limits, download
        self._target = where / file.name
        self._part, self._notes = where / f"{file.name}{PART}", where / f"{file.name}{NOTES}"
        self._before = download.bytes  # of the files in front of this one
        self._size, self._sha256 = file.size, file.sha256

    async def run(self) -> None:
        """Raises UnfitFile, OSError."""
        self._check_bounds(self._download.total or 0, 0)
        if await self._is_there():
            self._download.bytes += self._size or 0
            return
        with _locked(self._part, self._notes) as part:
            await self._receive(part)
            await asyncio.to_thread(_flush, part)
            await self._verify(self._part)
            self._part.replace(self._target)

    async def _is_there(self) -> bool:
        """Return whether an earlier download has brought the same file."""
        try:
            if self._target.stat().st_size == self._size:
                await self._verify(self._target)
                return True
        except (FileNotFoundError, UnfitFile):
            pass
        return False

    async def _receive(self, part: BinaryIO) -> None:
        """Request what is missing until it is there."""
        failures = 0
        while True:
            start = part.seek(0, os.SEEK_END)
            self._download.bytes = self._before + start
            if start and start == self._size:
                return
            try:
                await self._attempt(part, start)
                return
            except (TryAgain, httpx2.HTTPError) as error:
                failures = 1 if part.tell() > start else failures + 1
                if failures >= self._limits.attempts:
                    advice = "Start it again to go on"
                    raise UnfitFile(
                        f"{self._file.name} broke off {failures} times ({reason_of(error)}). {advice}."
                    ) from error
                await asyncio.sleep(self._limits.pause_s * 2**failures)

    async def _attempt(self, part: BinaryIO, start: int) -> None:
        headers, etag = {}, _read_notes(self._notes).etag
        if start and (etag or self._sha256):
            headers = {"Range": f"bytes={start}-"} | ({"If-Range": etag} if etag else {})
        async with self._client.opened(self._file.url, headers) as (response, sha256):
            self._sha256 = self._file.sha256 or sha256
            begins, size = _extent(response)
            if begins != start:  # it is sent from its start, or not at all: it has changed, or is too long
                part.truncate(0)
                if begins != 0:
                    raise TryAgain("it does not go on where it ended")
            self._size = self._file.size or size
            if size and size != self._size:
                raise UnfitFile(f"{self._file.name} has {size:,} bytes, and {self._size:,} were announced.")
            etag = response.headers.get("etag", "")
            known = _Notes(self._download.source, etag if etag.startswith('"') else "")  # If-Range takes no weak one
            self._notes.touch(0o600)
            self._notes.write_bytes(msgspec.json.encode(known))
            await self._write(part, response, part.seek(begins))
        if self._size and part.tell() < self._size:
            raise TryAgain("it ended early")

    async def _write(self, part: BinaryIO, response: httpx2.Response, at: int) -> None:
        self._check_bounds(self._before + (self._size or 0), max((self._size or 0) - at, 0))
        most, looked, start = self._size or self._limits.most_bytes - self._before, at, b"" if at == 0 else MAGIC
        async for piece in response.aiter_raw():
            if len(start) < len(MAGIC) and not MAGIC.startswith(start := (start + piece)[: len(MAGIC)]):
                check_magic(start, self._file.url)
            at += len(piece)
            if at > most:
                part.truncate(0)
                raise UnfitFile(f"{self._file.name} has no end: more came than {most:,} bytes.")
            await asyncio.to_thread(part.write, piece)
            self._download.bytes, self._download.received = self._before + at, self._download.received + len(piece)
            if at - looked > self._limits.look_bytes:
                looked = at
                self._check_bounds(0, 0)

    def _check_bounds(self, whole: int, need: int) -> None:
        most, free = self._limits.most_bytes, self._limits.free(self._target.parent) - self._limits.reserve
        if whole > most:
            raise UnfitFile(
                f"{self._download.name} has {whole / 1e9:,.1f} GB, and model_download_mb allows {most / 1e9:,.1f}. "
                "Choose a smaller quantisation, or raise the setting."
            )
        if free < need:
            room = f"{max(free, 0) / 1e9:,.1f} GB beside a reserve, and {need / 1e9:,.1f} GB are to come"
            raise UnfitFile(f"{self._target.parent} has room for {room}. Free some space, and start again to go on.")

    async def _verify(self, path: Path) -> None:
        """Compare the file with what the hub says of it; one that differs is deleted. Raises UnfitFile."""
        self._download.state = "checking"
        differs = bool(self._sha256) and await _sha256_of(path) != self._sha256
        self._download.state = "downloading"
        if differs:
            await asyncio.to_thread(path.unlink)
            raise UnfitFile(f"{self._file.name} has not the checksum that its hub names, and was deleted. Try again.")
        self._download.checked = "sha256" if self._sha256 else "size and format"


@contextmanager
def _locked(path: Path, notes: Path) -> Iterator[BinaryIO]:
    """Open a part for its one writer, whichever process that is; an empty one goes at the end. Raises UnfitFile."""
    with os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600), "r+b") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if path.stat().st_ino != os.fstat(file.fileno()).st_ino:
                raise FileNotFoundError  # it has just got its name
        except (BlockingIOError, FileNotFoundError):
            raise UnfitFile(f"{path.stem} is being downloaded already. Wait for it, or cancel it.") from None
        try:
            yield file
        finally:
            if file.seek(0, os.SEEK_END) == 0:
                path.unlink(missing_ok=True)
            if not path.exists():
                notes.unlink(missing_ok=True)


def _extent(response: httpx2.Response) -> tuple[int, int | None]:
    """Return where an answer begins, -1 for one that has no part, and the size of the whole file if it is known."""
    if response.status_code == 200:
        length = response.headers.get("content-length", "")
        return 0, int(length) if length.isdecimal() else None
    found = _RANGE.fullmatch(response.headers.get("content-range", ""))
    return (int(found[1]), int(found[2]) if found[2] else None) if found else (-1, None)


def _flush(part: BinaryIO) -> None:
    part.flush()  # the last piece may lie in the buffer
    os.fsync(part.fileno())


async def _sha256_of(path: Path) -> str:
    """Hash a file in pieces, so that a download that is cancelled leaves no thread behind that reads on."""
    digest = hashlib.sha256()
    with await asyncio.to_thread(path.open, "rb") as file:
        while piece := await asyncio.to_thread(file.read, HASHED_AT_ONCE):
            await asyncio.to_thread(digest.update, piece)
    return digest.hexdigest()
