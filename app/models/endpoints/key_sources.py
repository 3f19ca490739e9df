"""Sources of API keys: environment variables, key files, and keys sent at run time, stored in private files."""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from msgspec import Struct

from app.core.endpoint_spec import EndpointSpec
from app.replicas.secret_store import KEPT_S, SecretStore

MAX_FILE_BYTES = 64 * 1024
MAX_KEY = 8192  # characters
KIND = "endpoint"  # in the vault
SENT = ".sent"  # suffix of the files written here; other files are never deleted


class InvalidKey(ValueError):
    """A key that is not a valid header value. The message never contains it."""


class Keys(Struct, frozen=True):
    """Keys that were read, and the problems with the others."""

    values: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()


def read_keys(
    spec: EndpointSpec, environ: Mapping[str, str], folder: Path, shared: Mapping[str, bytes] | None = None
) -> Keys:
    """Read the keys that a spec names. A file name without a path is one of `shared`, or in the KeyFolder `folder`."""
    values: list[str] = []
    problems: list[str] = []
    sources = [(f"the variable {name}", partial(_in_variable, environ, name)) for name in spec.key_env]
    sources += [
        (f"the file {file}", partial(_in_shared, (shared or {}).get(file), folder / file)) for file in spec.key_file
    ]
    for source, read in sources:
        try:
            values += [check_key(key) for key in read()]
        except OSError as error:
            problems.append(f"{source} cannot be read: {error.strerror}")
        except ValueError as error:
            problems.append(f"{source} {error}")
    return Keys(tuple(dict.fromkeys(values)), tuple(problems))


def _in_variable(environ: Mapping[str, str], name: str) -> list[str]:
    if not environ.get(name):
        raise ValueError("is not set")
    return [environ[name]]


def _in_shared(shared: bytes | None, file: Path) -> list[str]:
    return _in_file(file) if shared is None else shared.decode().splitlines()


def _in_file(file: Path) -> list[str]:
    """Read one key per line; only regular files, because reading a device or a pipe may never end."""
    if not file.is_file():
        raise ValueError("is not there" if not file.exists() else "is no file")
    with file.open("rb") as opened:
        written = opened.read(MAX_FILE_BYTES + 1)
    if len(written) > MAX_FILE_BYTES:
        raise ValueError(f"has more than {MAX_FILE_BYTES} bytes: it cannot be a key")
    try:
        lines = [line for line in map(str.strip, written.decode().splitlines()) if line]
    except UnicodeDecodeError:
        raise ValueError("is not text") from None
    if not lines:
        raise ValueError("is empty")
    return lines


def check_key(key: str) -> str:
    """Return the key without surrounding white space. Raises InvalidKey."""
    key = key.strip()
    if not key or len(key) > MAX_KEY or not key.isascii() or not key.isprintable() or " " in key:
        raise InvalidKey("holds no key: that is printable ASCII without spaces")
    return key


class KeyFolder:
    """Key files written by the server, one per endpoint, readable only by the server's user.

    With a vault they lie there, under the same names; `shared` are those that were there at the last `refresh`.
    """

    def __init__(self, folder: Path, vault: SecretStore | None = None) -> None:
        self.folder = folder
        self.shared: Mapping[str, bytes] = {}
        self._vault = vault

    async def refresh(self) -> None:
        """Read what other servers have put; put what lies in files of a time before. Raises StoreFailed."""
        if self._vault:
            self.shared = await self._vault.all(KIND)
            for file in self.folder.glob(f"*{SENT}"):
                own = await asyncio.to_thread(file.read_bytes)
                self.shared = {**self.shared, file.name: await self._vault.first(KIND, file.name, own)}
                file.unlink()

    async def keep(self, name: str, keys: Sequence[str]) -> str:
        """Write a new file with a unique name, and return the name. Raises OSError, StoreFailed."""
        file = f"{name}.{secrets.token_hex(4)}{SENT}"
        if self._vault:
            await self._vault.put(KIND, file, "\n".join(keys).encode())
            return file
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        opened = os.open(self.folder / file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(opened, "w") as kept:
            kept.write("".join(f"{key}\n" for key in keys))
        return file

    async def drop(self, files: Sequence[str]) -> None:
        self._drop(files)
        if self._vault and files:
            await self._vault.remove(KIND, files)

    def _drop(self, files: Sequence[str]) -> None:
        for file in files:
            (self.folder / file).unlink(missing_ok=True)

    async def sweep(self, specs: Sequence[EndpointSpec]) -> None:
        """Delete the files that no endpoint refers to; of those in the vault, where one may be just being added, late.

        Raises StoreFailed.
        """
        wanted = {Path(file).name for spec in specs for file in spec.key_file}
        if self._vault and (unused := self.shared.keys() - wanted):
            await self._vault.remove(KIND, unused, KEPT_S)
        self._drop([file.name for file in self.folder.glob(f"*{SENT}") if file.name not in wanted])
