"""Settings of the database and of replicas, which are servers that share one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

from pydantic import BaseModel, SecretStr, field_validator

from app.core.settings_fields import path, seconds, setting, switch, whole
from tools.base.patterns import lazy_pattern

SCHEMES = ("postgres", "postgresql")
SHORTEST_SECRET = 32
NODE = lazy_pattern(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")


class ReplicaSettings(BaseModel, defer_build=True):
    """Replicas."""

    database_url: SecretStr | None = setting(
        None,
        "PostgreSQL database that this server uses, alone or with others (default: SQLite in the data directory)",
        "a URL such as postgresql://user:password@host:5432/name, best as DRAGOMAN_DATABASE_URL",
    )
    node: str | None = setting(
        None,
        "name of this machine among servers that share a database (default: its host name at the first start)",
        "at most 63 letters, digits, points, hyphens and underscores",
    )
    lease_s: float = seconds(
        10.0, "time without a sign of life after which other servers continue the runs of this one", low=3, high=600
    )
    workers: int = whole(1, 1, 64, "servers behind this one port, each on a core; more than one need database_url")
    workspace_shared: bool = switch(False, "all servers that share the database see the same workspace folder")
    secret_key: SecretStr | None = setting(
        None,
        "encrypts the keys and tokens that servers share; the same on each, best as DRAGOMAN_SECRET_KEY",
        f"at least {SHORTEST_SECRET} random characters, such as of `openssl rand -base64 32`; `NEW,OLD` replaces one",
    )

    secrets_key_file: Path | None = path(
        None,
        "file with the key that encrypts secrets, the same at servers that share a database (default: secrets.key in "
        "the data directory)",
    )

    @field_validator("database_url")
    @classmethod
    def _is_postgres(cls, value: SecretStr | None) -> SecretStr | None:
        if value is None:
            return None
        try:
            parts = urlsplit(value.get_secret_value())
            _ = parts.port
        except ValueError:  # its message may contain the password
            raise ValueError("is no URL") from None
        if parts.scheme not in SCHEMES:
            raise ValueError("is not of PostgreSQL")
        return value

    @field_validator("node")
    @classmethod
    def _is_name(cls, value: str | None) -> str | None:
        if value is not None and not NODE.fullmatch(value):
            raise ValueError("is no name of a node")
        return value

    @field_validator("secret_key")
    @classmethod
    def _is_long(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None and len(value.get_secret_value()) < SHORTEST_SECRET:
            raise ValueError("is too short")
        return value

    @property
    def postgres_url(self) -> str | None:
        """The URL of the database, with its password; None for SQLite."""
        return self.database_url.get_secret_value() if self.database_url else None

    @property
    def database_secrets(self) -> list[str]:
        """Secrets of these settings: the URL's password, as it is written there and as it is."""
        secret_key = [self.secret_key.get_secret_value()] if self.secret_key else []
        password = urlsplit(self.postgres_url).password if self.postgres_url else None
        return [*secret_key, *({password, unquote(password)} if password else ())]


def worker_problems(settings: ReplicaSettings) -> Iterator[str]:
    """Yield why there cannot be so many workers."""
    if settings.workers > 1 and settings.database_url is None:
        yield (
            f"{settings.workers} workers need a database that they can share: set DRAGOMAN_DATABASE_URL to one of "
            "PostgreSQL (`dragoman db move URL` takes along what there is), or workers to 1."
        )
