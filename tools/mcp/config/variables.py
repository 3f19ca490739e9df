"""`${VAR}`, `${VAR:-default}` and `${env:VAR}` in the entries of a configuration; `${secret:NAME}` is left there."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

from tools.base.patterns import lazy_pattern

_VARIABLE = lazy_pattern(
    r"\$\{(?:(?P<kind>env|secret|input|file|command|config):)?(?P<name>[^}:]+)(?::-(?P<default>[^}]*))?\}"
)


_WITH_SECRETS = ("env.", "env[", "environment.", "environment[", "headers.")


class BadEntry(ValueError):
    """An entry that cannot be used. The message names the field."""


class Variables(Struct, frozen=True):
    """Values for variables. Without an `environ` none is filled in: the entry's author may not read it."""

    environ: Mapping[str, str] | None
    folder: Path
    workspace: Path | None = None  # tools write there, so no configuration or code of a server may lie in it

    def fill(self, field: str, text: str) -> str:
        """Fill variables in. Raises BadEntry for an unknown one: an empty text or the bare name would be worse."""
        return _VARIABLE.sub(lambda found: self._value(field, found), text)

    def _value(self, field: str, found: re.Match[str]) -> str:
        kind, name, default = found["kind"], found["name"], found["default"]
        if kind == "secret" and field.startswith(_WITH_SECRETS) and default is None:
            return found[0]  # its value is put there for each connection
        if kind == "secret":
            raise BadEntry(f"{field}: {found[0]} can stand in env and headers only, without a default.")
        if self.environ is None:
            raise BadEntry(f"{field}: {found[0]} is not filled in here. Give the value itself.")
        if kind not in (None, "env"):
            raise BadEntry(f"{field}: {found[0]} is not supported. Set a variable instead, and write ${{NAME}}.")
        value = self.environ.get(name) or default
        if value is not None:
            return value
        if kind is None and name == "workspaceFolder":
            return str(self.folder)
        if kind is None and name == "userHome" and "HOME" in self.environ:
            return self.environ["HOME"]
        raise BadEntry(f"{field}: the variable {name} is not set. Set it, or write ${{{name}:-default}}.")


def read_env_file(text: str) -> dict[str, str]:
    """The lines `NAME=value` of a .env file: `export`, quotes and comments as shells have them."""
    found = {}
    for line in text.splitlines():
        name, equals, value = line.strip().removeprefix("export ").partition("=")
        if not equals or name.startswith("#"):
            continue
        value = value.strip()
        if len(value) > 1 and value[0] in "'\"" and value.endswith(value[0]):
            value = value[1:-1]
        else:
            value = value.partition(" #")[0].rstrip()
        found[name.strip()] = value
    return found
