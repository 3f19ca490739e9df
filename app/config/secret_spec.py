"""The specification of a secret: which calls it goes with, and where its value comes from; never the value."""

from __future__ import annotations

import re
import shlex
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from app.core.rules import checked_pattern
from tools.base.patterns import lazy_pattern
from tools.base.rights import names_match
from tools.web.egress import ANY, pattern_of

NAME = lazy_pattern(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
NAME_RULE = "A secret's name has 1 to 64 letters, digits, . _ - and begins with a letter or digit."
STORED = ""  # the source of a value that is stored, encrypted
ENVIRONMENT, CREDENTIAL, COMMAND = "env", "credential", "command"
SOURCES = f"{ENVIRONMENT}:NAME, {CREDENTIAL}:NAME or {COMMAND}:'PROGRAM ARGUMENT ...'"
HTTP = "http://"  # before a host that may get the secret without TLS
COMMAND_TOOLS = ("bash", "python")  # that run in the sandbox, whose network a secret goes through
MOST_HOSTS, MOST_PATHS, MOST_TOOLS = 20, 50, 20
# The sandbox gives a command its own values of others, and the end of the name says that a value is to be hidden.
_VARIABLE = lazy_pattern(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_VARIABLE_END = lazy_pattern(r"(KEY|TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|PASS|CREDENTIALS?)(_\d+)?$", re.IGNORECASE)
_VARIABLE_OF_FILE = lazy_pattern(r"(LD|DYLD|PYTHON|GIT_CONFIG|GIT_SSL|SSL)_", re.IGNORECASE)
_SOURCE_NAME = lazy_pattern(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
_PATH = lazy_pattern(r"(?:[A-Z]{1,16} )?/[\x21-\x7e]*")


def _host(written: str) -> str:
    plain = written.strip().lower()
    host = plain.removeprefix(HTTP).removeprefix("https://").rstrip("/")
    pattern = pattern_of(host)
    if pattern is None or "/" in host or "@" in host:
        raise ValueError(f"{written[:80]!a} is no host: write api.example.org, *.example.org or example.org:8443")
    if pattern.host == ANY or (pattern.host.startswith("*.") and pattern.host.count(".") < 2):
        raise ValueError(f"{written[:80]!a} names too many hosts: a secret goes to hosts that you name")
    return f"{HTTP if plain.startswith(HTTP) else ''}{host}"


def _variable(name: str) -> str:
    if not _VARIABLE.fullmatch(name) or not _VARIABLE_END.search(name) or _VARIABLE_OF_FILE.match(name):
        raise ValueError("is no variable for a secret: letters, digits and _, ending in TOKEN, KEY, PASSWORD or so")
    return name


def _path(written: str) -> str:
    if not _PATH.fullmatch(written) or len(written) > 512:
        raise ValueError(f"{written[:80]!a} is no path: write /repos/** or 'GET /repos/**'")
    return written


def _source(written: str) -> str:
    kind, _, what = written.partition(":")
    if written == STORED or (kind in (ENVIRONMENT, CREDENTIAL) and _SOURCE_NAME.fullmatch(what)):
        return written
    if kind == COMMAND and len(what) < 2048 and what.isprintable() and argv_of(written):
        return written
    raise ValueError(f"{kind[:20]!a} is no source that can be used: write {SOURCES}")


def argv_of(source: str) -> list[str]:
    """Return the words of a source that is a command; none if they cannot be parsed."""
    try:
        return shlex.split(source.partition(":")[2])
    except ValueError:
        return []


def _patterns(tools: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(map(checked_pattern, tools))


class SecretSpec(BaseModel, defer_build=True):
    """One secret. Without an `env` it goes with no command: only the configuration of MCP servers may name it.

    `role` is the least of a principal whose calls it goes with. `paths` narrow the requests that get it, each a pattern
    of paths, with the method in front if there is one. `source`: empty if the value is stored.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    env: Annotated[str, AfterValidator(_variable)] | None = None
    hosts: Annotated[tuple[Annotated[str, AfterValidator(_host)], ...], Field(max_length=MOST_HOSTS)] = ()
    tools: Annotated[tuple[str, ...], AfterValidator(_patterns), Field(max_length=MOST_TOOLS)] = COMMAND_TOOLS
    role: Literal["user", "admin"] = "admin"
    paths: Annotated[tuple[Annotated[str, AfterValidator(_path)], ...], Field(max_length=MOST_PATHS)] = ()
    source: Annotated[str, AfterValidator(_source)] = STORED

    @model_validator(mode="after")
    def _fits_together(self) -> SecretSpec:
        if self.env and not self.hosts:
            raise ValueError("a secret for commands needs the hosts that it goes to")
        if self.env and not (self.tools and all(names_match(COMMAND_TOOLS, (one,)) for one in self.tools)):
            raise ValueError(f"a secret goes with commands only: its tools are of {', '.join(COMMAND_TOOLS)}")
        return self
