"""The value of a secret: decrypted with the key file, or taken from where the operator keeps it.

The key is in one file, which servers of one database share: that of `secrets_key_file`, the systemd credential
`secrets.key`, or `secrets.key` in the data directory, which is made when the first secret is stored. Each line is a
key; the first one encrypts. A value belongs to its name and its specification: with other hosts it is not readable.
"""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from app.config.secret_spec import COMMAND, ENVIRONMENT, SecretSpec, argv_of
from app.config.settings import Settings
from app.redaction.redactor import FEWEST, SHORTEST, forms
from app.replicas.secret_store import SHORTEST as SHORTEST_KEY
from app.replicas.secret_store import Seal
from app.storage.changes import StoreFailed
from app.storage.people.secrets import SecretRow
from tools.base.containment import lies_in
from tools.process.command_output import CommandFailed, output_of

KEY_FILE = "secrets.key"
CREDENTIALS = "CREDENTIALS_DIRECTORY"
KIND = "secret"
MOST_VALUE = 8192  # characters
MOST_FILE = 64 * 1024
COMMAND_S = 20.0
# What `pass`, `op` and others need to find the keys of the server's user.
PASSED_ON = ("PATH", "HOME", "LANG", "USER", "LOGNAME", "GNUPGHOME", "XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS")
PASSED_ON_PREFIXES = ("PASSWORD_STORE_", "OP_", "VAULT_", "BW_")


class SecretUnavailable(Exception):
    """A secret has no value now. The message names it and says what to do; it holds no value."""


class UnfitSecret(ValueError):
    """A value that cannot be a secret. The message does not hold it."""


def checked_value(value: str) -> str:
    """Return the value without the line end of a prompt or a file. Raises UnfitSecret."""
    value = value.strip()
    if not value:
        raise UnfitSecret("The value is empty.")
    if len(value) > MOST_VALUE or not value.isascii() or not value.isprintable():
        raise UnfitSecret(f"The value must be one line of at most {MOST_VALUE} printable ASCII characters.")
    if not any(forms(value)):
        raise UnfitSecret(
            f"The value is too short to be hidden in texts: {SHORTEST} characters, {FEWEST} of them different, are the "
            "least."
        )
    return value


class SecretSources(Struct, frozen=True):
    """`makes_key`: the key file is in the data directory, and made when there is none."""

    key_file: Path
    makes_key: bool
    environ: Mapping[str, str]
    workspace: Path

    @classmethod
    def of(cls, settings: Settings, environ: Mapping[str, str]) -> SecretSources:
        path, own = settings.secrets_key_file, settings.data_dir / KEY_FILE
        if path is None and (folder := environ.get(CREDENTIALS)) and (Path(folder) / KEY_FILE).exists():
            path = Path(folder) / KEY_FILE
        return cls(path or own, path is None, environ, settings.workspace)

    def sealed(self, name: str, spec: str, value: str, *, is_first: bool) -> bytes:
        """Encrypt a value; the key is made for the first one. Raises SecretUnavailable."""
        if is_first and self.makes_key and not self.key_file.exists():
            try:
                with os.fdopen(os.open(self.key_file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
                    file.write(f"{secrets.token_urlsafe(32)}\n")
                    file.flush()
                    os.fsync(file.fileno())
            except OSError as error:
                raise SecretUnavailable(f"The key file {self.key_file} cannot be made: {error.strerror}.") from error
        return self._seal(name).close(KIND, _bound(name, spec), value.encode())

    async def value(self, row: SecretRow, spec: SecretSpec) -> str:
        """Return the value now. Raises SecretUnavailable."""
        kind, _, what = spec.source.partition(":")
        try:
            if not kind:
                return await asyncio.to_thread(self._opened, row)
            if kind == ENVIRONMENT:
                return checked_value(self.environ.get(what, ""))
            if kind == COMMAND:
                return await self._printed(spec.source)
            return checked_value(await asyncio.to_thread(self._credential, what))
        except CommandFailed as failure:
            raise SecretUnavailable(f"The secret {row.name} is missing: its command {failure}.") from None
        except UnfitSecret as unfit:
            raise SecretUnavailable(f"The secret {row.name} is missing from {spec.source}. {unfit}") from None

    def _opened(self, row: SecretRow) -> str:
        if row.sealed is None:
            raise SecretUnavailable(f"The secret {row.name} has no value: add it again with --replace.")
        try:
            return self._seal(row.name).open(KIND, _bound(row.name, row.spec), row.sealed).decode()
        except StoreFailed:
            raise SecretUnavailable(
                f"The secret {row.name} was encrypted with another key than that in {self.key_file}. Put the key file "
                "of then there (all servers of a database need the same), or remove the secrets and add them again."
            ) from None

    def _seal(self, name: str) -> Seal:
        try:
            keys = self.key_file.read_text().split()
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "it is not text"
            raise SecretUnavailable(
                f"The key file {self.key_file} of the secret {name} cannot be read: {reason}. Restore it from the "
                "backup, or name the file that other servers use as secrets_key_file."
            ) from None
        if not keys or min(map(len, keys)) < SHORTEST_KEY:
            raise SecretUnavailable(
                f"The key file {self.key_file} holds no key: write at least {SHORTEST_KEY} random characters, such as "
                "of `openssl rand -base64 32`."
            )
        return Seal(keys)

    async def _printed(self, source: str) -> str:
        argv = argv_of(source)
        if os.sep in argv[0] and (not Path(argv[0]).is_absolute() or lies_in(Path(argv[0]), self.workspace)):
            raise CommandFailed("is a relative path or in the workspace, where tools could change it")
        environ = {
            name: value
            for name, value in self.environ.items()
            if name in PASSED_ON or name.startswith(PASSED_ON_PREFIXES)
        }
        try:
            async with asyncio.timeout(COMMAND_S):
                printed = await output_of(argv, b"", environ, MOST_FILE)
        except TimeoutError:
            raise CommandFailed(f"took more than {COMMAND_S:g} s") from None
        first = printed.decode("utf-8", "replace").strip().partition("\n")[0]  # `pass` has notes behind the password
        return checked_value(first)

    def _credential(self, name: str) -> str:
        folder = self.environ.get(CREDENTIALS)
        with suppress(OSError, UnicodeDecodeError):
            return (Path(folder) / name).read_text() if folder else ""
        return ""


def _bound(name: str, spec: str) -> str:
    return f"{name}\n{spec}"
