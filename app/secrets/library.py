"""The secrets of a server: which there are, what calls they go with, and their values when one is needed."""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Awaitable, Callable, Collection, Sequence

from msgspec import Struct
from msgspec.structs import replace
from pydantic import ValidationError

from app.config.secret_spec import NAME, NAME_RULE, SecretSpec
from app.policy.secret_rights import SecretRight, SecretRights
from app.redaction.redactor import Redactor
from app.secrets.sources import SecretSources, SecretUnavailable, UnfitSecret, checked_value
from app.storage.audit import AuditRow
from app.storage.changes import StoreFailed
from app.storage.people.secrets import SecretRemoved, SecretRow, SecretTable
from tools.base.rights import Role
from tools.sandbox.network.injection import Origin, belongs_to, forms_of
from tools.sandbox.network.secrets import BoxSecret

KEPT_S = 60.0  # that the value of a source is used without asking it anew
PLACEHOLDER = "dragoman_placeholder_"

logger = logging.getLogger(__name__)


class UnknownSecret(Exception):
    """No secret has this name."""

    def __init__(self, name: str) -> None:
        super().__init__(f"There is no secret {name[:80]!a}. `dragoman secret list` and GET /secrets list them.")


class SecretExists(Exception):
    """A secret has this name."""

    def __init__(self, name: str) -> None:
        super().__init__(f"There is a secret {name} already: replace it (--replace), or take another name.")


class Resolved(Struct, frozen=True):
    """The value of a row, and until when it is used (time.monotonic())."""

    row: SecretRow
    value: str
    until: float


class Secrets:
    """The secrets of the store. `on_change` gets the names of those that were added, replaced or removed."""

    def __init__(self, store: SecretTable, sources: SecretSources, redactor: Redactor) -> None:
        self.rights = SecretRights()
        self.on_change: Callable[[Collection[str]], Awaitable[object]] | None = None
        self._store = store
        self._sources = sources
        self._redactor = redactor
        self._rows: dict[str, SecretRow] = {}
        self._specs: dict[str, SecretSpec] = {}
        self._reading = asyncio.Lock()
        self._writing = asyncio.Lock()
        self._changed: set[str] = set()  # what `on_change` does not know yet
        self._resolved: dict[str, Resolved] = {}

    async def reload(self) -> None:
        """Take the secrets of the store, and let stored values be redacted from now on. Raises StoreFailed."""
        await self._read()
        changed, self._changed = self._changed, set()
        if changed and self.on_change:
            await self.on_change(changed)

    async def _read(self) -> None:
        async with self._reading:
            rows = {row.name: replace(row, used=None) for row in await self._store.secrets()}
            changed = {name for name in {*rows, *self._rows} if rows.get(name) != self._rows.get(name)}
            if not changed:
                return
            specs = {row.name: spec for row in rows.values() if (spec := spec_of(row))}
            self._rows, self._specs = rows, specs
            self._changed |= changed
        for name in sorted(changed & specs.keys()):
            if not specs[name].source:
                try:
                    await self._value(name)
                except SecretUnavailable as problem:
                    logger.warning("%s", problem)
        self.rights.all = tuple([_right(self._rows[name], spec) for name, spec in self._specs.items() if spec.env])

    async def value(self, name: str, to: Origin | None = None, *, bound: bool = False) -> str:
        """Return a value as it is now, for requests to a server if one is given; `bound`: the secret has to name it.

        Raises SecretUnavailable.
        """
        await self._reread()
        hosts = self._specs[name].hosts if name in self._specs else ()
        if to and hosts and not belongs_to(hosts, to):
            raise SecretUnavailable(f"The secret {name} is not for {to}: it goes to {', '.join(hosts)} only.")
        if bound and not hosts:
            raise SecretUnavailable(f"The secret {name} names no hosts: name it in the configuration file only.")
        return await self._value(name)

    async def of_call(self, rights: Sequence[SecretRight]) -> tuple[BoxSecret, ...]:
        """Return the secrets of a call, each with a new placeholder. Raises SecretUnavailable."""
        await self._reread()
        found = []
        for right in rights:
            spec = self._specs.get(right.name)
            if spec is None or not spec.env or _right(self._rows[right.name], spec) != right:
                raise SecretUnavailable(f"The secret {right.name} was removed or replaced: ask for the call again.")
            found.append(
                BoxSecret(
                    name=right.name,
                    variable=spec.env,
                    placeholder=PLACEHOLDER + secrets.token_hex(16),
                    value=await self._value(right.name),
                    hosts=spec.hosts,
                    paths=spec.paths,
                )
            )
        return tuple(found)

    async def _reread(self) -> None:
        """Take what other processes have removed or replaced until now. Raises SecretUnavailable."""
        try:
            await self._read()  # those that follow changes come later: one of them may be what asks
        except StoreFailed as failure:
            raise SecretUnavailable(f"No secret can be used now. {failure}") from failure

    async def _value(self, name: str) -> str:
        row, spec = self._rows.get(name), self._specs.get(name)
        if row is None or spec is None:
            self._resolved.pop(name, None)
            raise SecretUnavailable(str(UnknownSecret(name)))
        known = self._resolved.get(name)
        if known is None or known.row != row or known.until < time.monotonic():
            value = await self._sources.value(row, spec)
            if known is None or known.value != value:
                self._redactor.add(*[form.decode() for form in forms_of(value)])
            known = self._resolved[name] = Resolved(row, value, time.monotonic() + KEPT_S)
        return known.value

    async def rows(self) -> list[tuple[SecretRow, SecretSpec | None]]:
        """Return all secrets, each with the time of its last use. Raises StoreFailed."""
        return [(row, spec_of(row)) for row in await self._store.secrets()]

    async def add(self, name: str, spec: SecretSpec, value: str, by: str, *, replaces: bool = False) -> None:
        """Add a secret, or replace one. Raises UnfitSecret, SecretExists, SecretUnavailable, StoreFailed."""
        async with self._writing:
            rows = {row.name: row for row in await self._store.secrets()}
            check_free(name, rows, replaces=replaces)
            others = [row for row in rows.values() if row.name != name]
            for row in others:
                if spec.env and (known := spec_of(row)) and known.env == spec.env:
                    raise UnfitSecret(
                        f"{spec.env} is the variable of the secret {row.name}: a call can have one of them."
                    )
            written, sealed = spec.model_dump_json(exclude_defaults=True), None
            if not spec.source:
                stored = next((row for row in others if row.sealed is not None), None)
                if stored and (known := spec_of(stored)):
                    await self._sources.value(stored, known)  # no second key beside the one that is missing
                sealed = self._sources.sealed(name, written, checked_value(value), is_first=stored is None)
            decision = "replaced" if name in rows else "added"
            await self._store.write(
                [SecretRow(name, written, sealed, by, time.time()), _audit(name, decision, by, written)]
            )
        await self.reload()

    async def remove(self, name: str, by: str) -> None:
        """Raises UnknownSecret, StoreFailed."""
        if name not in {row.name for row in await self._store.secrets()}:
            raise UnknownSecret(name)
        await self._store.write([SecretRemoved(name), _audit(name, "removed", by)])
        await self.reload()


def check_free(name: str, taken: Collection[str], *, replaces: bool) -> None:
    """Raises UnfitSecret, SecretExists."""
    if not NAME.fullmatch(name):
        raise UnfitSecret(NAME_RULE)
    if name in taken and not replaces:
        raise SecretExists(name)


def spec_of(row: SecretRow) -> SecretSpec | None:
    """Return the spec of a row; None, with a log line, if this version cannot read it."""
    try:
        return SecretSpec.model_validate_json(row.spec)
    except ValidationError:
        logger.error("secret %s in the store is invalid; remove it and add it again", row.name)
        return None


def _right(row: SecretRow, spec: SecretSpec) -> SecretRight:
    return SecretRight(
        row.name, variable=spec.env or "", hosts=spec.hosts, tools=spec.tools, role=Role(spec.role), since=row.at
    )


def _audit(name: str, decision: str, by: str, why: str = "") -> AuditRow:
    return AuditRow(time.time(), by, f"secret {name}", decision, why=why, by=by)
