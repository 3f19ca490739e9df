"""The MCP servers of the file and those that were added at run time, as one: read, watched, changed, remembered."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import time
from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from app.config.settings import Settings
from app.mcp.declared_trust import DeclaredTrust, StoredPins
from app.mcp.elicitation import elicit
from app.mcp.files import KeptFiles
from app.mcp.secrets import completed, names_secret, secrets_of
from app.mcp.sign_ins import sign_ins_of
from app.redaction.redactor import Redactor
from app.replicas.peers import Peers
from app.replicas.secret_store import SecretStore
from app.secrets.library import Secrets
from app.storage.audit import AuditRow
from app.storage.changes import StoreFailed
from app.storage.mcp import McpServerRemoved, McpServerRow, McpStore
from tools.base.file_stamps import Stamp, stamp_of
from tools.base.patterns import lazy_pattern
from tools.base.pause_check import CheckPaused
from tools.base.rights import Trust
from tools.base.tasks import in_background
from tools.mcp.config.entries import config_of, read_config
from tools.mcp.config.variables import Variables
from tools.mcp.manager import Manager
from tools.mcp.model import (
    Hooks,
    McpEvent,
    NoSuchServer,
    ObserveOperation,
    ServerChanged,
    ServerConfig,
    ServerState,
    Status,
    ToolsChanged,
)
from tools.tool import Tool

LOOK_EVERY_S = 1.0  # how often the file is looked at
# A child process with these variables runs code of their author, whatever the command is.
_DANGEROUS = lazy_pattern(
    r"(LD_|DYLD_|PYTHON|NODE_|PERL|RUBY|JAVA_|JDK_|BASH_|GIT_|SSH_)\w*|PATH|HOME|IFS|ENV|SHELL|SHELLOPTS|.*PROXY",
    re.IGNORECASE,
)

logger = logging.getLogger(__name__)


class NothingHeld(Exception):
    """No such tool of a server is held back for approval."""


class ServerOfFile(Exception):
    """It stands in the file, which is changed there."""


class UnfitServer(Exception):
    """The entry cannot be used. The message says what is wrong with it."""


class CommandsForbidden(UnfitServer):
    """An entry with a command came from where only URLs may come from."""


class McpServers:
    """`manager` runs them. `problem` is what is wrong with the whole file, if anything is.

    While the server is paused (`check_paused` raises) nothing is added, connected, enabled or approved; what becomes
    of the file is taken in, and begins when it goes on.
    """

    def __init__(
        self,
        settings: Settings,
        store: McpStore,
        redactor: Redactor,
        *,
        environ: Mapping[str, str],
        check_paused: CheckPaused,
        observe: ObserveOperation | None,
        vault: SecretStore | None,
        secrets: Secrets,
        peers: Peers,
    ) -> None:
        self.problem = ""
        self._check_paused = check_paused
        self._file = settings.mcp_config
        self._workspace = settings.workspace
        self._commands_allowed = settings.mcp_commands_from_api
        self._store = store
        self._redactor = redactor
        self._environ = environ
        self._of_file: dict[str, ServerConfig] = {}
        self._configs: dict[str, ServerConfig] = {}
        self._seen: object = None  # the state of the file when it was read
        self.changing = peers.changing("mcp")
        self.trust = DeclaredTrust(store, settings.tools, settings.search_tool or "")
        self._sign_ins = sign_ins_of(settings, redactor, vault)
        hooks = Hooks(
            elicit=elicit,
            on_event=_log,
            auth=self._sign_ins.auth,
            eased_by=self.trust.classification.eased_by,
            keep=KeptFiles(store, settings.max_attachment_bytes),
            observe=observe,
            complete=partial(completed, secrets),
        )
        secrets.on_change = self.follow_secrets
        self.manager = Manager((), StoredPins(store), hooks, settings.private_hosts, check_paused)

    @asynccontextmanager
    async def opened(self) -> AsyncGenerator[None, None]:
        """Raises StoreFailed. Waits for no server."""
        await self.manager.open()
        await self._reload()  # without the lock: nobody else knows it yet
        try:
            async with in_background(self.watch_forever(), "mcp.json"):
                yield
        finally:
            await self.manager.close()
            await self._sign_ins.close()

    def tools(self) -> Sequence[Tool]:
        """Return the tools as they are classified now: the same list until they or that change."""
        return self.trust.classification.of_all(self.manager.tools())

    def sources(self) -> dict[str, Collection[str]]:
        """The names of the servers that offer tools, and the tools' names."""
        return {status.name: status.tools for status in self.status() if status.tools}

    def instructions(self) -> dict[str, str]:
        """The servers' instructions to models, as accepted; of those that have any."""
        return {name: self._redactor.redact(text) for name, text in self.manager.instructions().items()}

    def status(self) -> list[Status]:
        return self.manager.status()

    def redact(self, text: str) -> str:
        """Return a text of a server without the secrets that it was started with."""
        return self._redactor.redact(text)

    def named(self, name: str) -> Status:
        """Raises NoSuchServer."""
        return self.manager.named(name)

    async def watch_forever(self) -> None:
        """Take in what becomes of the file."""
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            if _state_of(self._file) == self._seen:
                continue
            try:
                await self.reload()
            except StoreFailed as failure:
                logger.error("what became of %s could not be taken in: %s", self._file, failure)
                self._seen = None  # so that it is tried again

    async def reload(self) -> None:
        """Make it so as the file and the store say. A file that cannot be read changes nothing. Raises StoreFailed."""
        async with self.changing:
            await self._reload()

    async def _reload(self) -> None:
        rows = {row.name: row for row in await self._store.mcp_servers()}
        self._read_file()
        added = {
            name: self._config_of(name, json.loads(row.entry)) for name, row in rows.items() if row.entry is not None
        }
        wanted = added | self._of_file
        for name, row in rows.items():
            if name in wanted and row.enabled is not None:
                wanted[name] = replace(wanted[name], enabled=row.enabled)
        gone = self._configs.keys() - wanted.keys()
        await self.trust.take(wanted, list(gone))
        for name in gone:
            del self._configs[name]
            await self.manager.remove(name)
            await self._sign_ins.forget(name)
        for name, config in wanted.items():
            old, self._configs[name] = self._configs.get(name), config
            if old is None or replace(old, trust=config.trust, tool_trust=config.tool_trust) != config:
                self._redactor.add(*secrets_of(config))
                await self.manager.add(config)
        await self.manager.follow_pins()

    def _read_file(self) -> None:
        seen = _state_of(self._file)
        if seen == self._seen:
            return
        self._seen = seen
        configured = read_config(self._file, self._environ, self._workspace)
        self.problem = configured.problem
        if self.problem:
            logger.warning("%s", self.problem)
        else:
            self._of_file = {config.name: config for config in configured.configs}

    def _config_of(self, name: str, entry: Any) -> ServerConfig:
        return config_of(name, entry, Variables(None, Path(), self._workspace), from_api=True)

    async def add(self, name: str, entry: Mapping[str, Any], by: str) -> Status:
        """Take in a server, or change the one of this name. Raises UnfitServer, ServerOfFile, Paused, ..."""
        self._check_paused()
        config = self._config_of(name, dict(entry))
        if config.problem:
            raise UnfitServer(config.problem)
        if config.transport == "stdio":
            self._check_command(config)
        async with self.changing:
            if name in self._of_file:
                raise ServerOfFile(f"{name} is in {self._file}: change it there, or use another name.")
            await self._store.write(
                [
                    McpServerRow(name, json.dumps(entry), None, by, time.time()),
                    self._audit(name, "added", by, config.url or config.command),
                ]
            )
            await self._reload()
        return self.named(name)

    def _check_command(self, config: ServerConfig) -> None:
        if not self._commands_allowed:
            advice = "Send a url, use `dragoman mcp add` on the server's machine, or set mcp_commands_from_api."
            raise CommandsForbidden(f"A command may not be added here, because it would run on this machine. {advice}")
        if forbidden := [variable for variable in config.env if _DANGEROUS.fullmatch(variable)]:
            raise UnfitServer(f"env.{forbidden[0]} may not be set here: it could run other code than the command.")

    async def remove(self, name: str, by: str) -> None:
        """Raises NoSuchServer, ServerOfFile, StoreFailed."""
        async with self.changing:
            self.named(name)
            if name in self._of_file:
                raise ServerOfFile(f"{name} is in {self._file}: use `dragoman mcp remove`, or disable it.")
            await self._store.write([McpServerRemoved(name), self._audit(name, "removed", by)])
            await self._reload()

    async def set_enabled(self, name: str, enabled: bool, by: str) -> None:
        """For good, whatever the file says. Raises NoSuchServer, Paused, StoreFailed."""
        if enabled:
            self._check_paused()
        async with self.changing:
            self.named(name)
            row = next((row for row in await self._store.mcp_servers() if row.name == name), None)
            changed = McpServerRow(name, row.entry if row else None, enabled, by, row.at if row else time.time())
            await self._store.write([changed, self._audit(name, "enabled" if enabled else "disabled", by)])
            await self._reload()

    async def reconnect(self, name: str, by: str) -> None:
        """Raises NoSuchServer, Paused, StoreFailed."""
        self._check_paused()
        self.named(name)
        await self._store.write([self._audit(name, "reconnected", by)])
        await self.manager.reconnect(name)

    async def approve(self, name: str, tool: str | None, by: str, digest: str | None = None) -> list[str]:
        """Trust what was held (one tool, as `digest` was seen), or all; names. Raises NothingHeld, HeldChanged, ..."""
        self._check_paused()
        held = [one.tool for one in self.named(name).held]
        if tool is not None and tool not in held:
            raise NothingHeld(f"{name} has no tool {tool[:80]!a} that is held. GET /mcp/servers/{name} lists those.")
        approved = await self.manager.approve(name, tool, digest)
        await self._store.write([self._audit(name, "approved", by, ", ".join(approved))])
        return approved

    async def declare(self, name: str, tool: str, trust: Trust, by: str) -> None:
        """Trust a server, or (by its own or its public name) a tool of it that is listed.

        Raises NoSuchServer, ServerUnseen, NotDeclared for a tool that is not listed, Paused, StoreFailed.
        """
        self._check_paused()
        async with self.changing:
            self.named(name)
            row = self.trust.declared(self._configs[name], self.tools(), tool, trust, by)
            why = ": ".join(filter(None, (row.tool, trust.words)))
            await self._store.write([row, self._audit(name, "trusted", by, why)])
            await self.trust.take(self._configs)

    async def withdraw_trust(self, name: str, tool: str, by: str) -> None:
        """Withdraw what a person has declared; what the file declares stays. Raises NoSuchServer, NotDeclared, ..."""
        async with self.changing:
            self.named(name)
            await self._store.write([self.trust.withdrawn(name, tool), self._audit(name, "trust withdrawn", by, tool)])
            await self.trust.take(self._configs)

    async def signed_in(self, state: str, code: str, issuer: str | None) -> str:
        """A person came back from a page with this. The server's name. Raises SignInFailed, Paused."""
        self._check_paused()
        name = self._sign_ins.finish(state, code, issuer)
        await self.manager.reconnect(name)
        return name

    async def follow_sign_ins(self) -> None:
        """Use the tokens that another server has got."""
        for name in await self._sign_ins.follow():
            if self.named(name).state is ServerState.NEEDS_AUTH:
                await self.manager.reconnect(name)

    async def follow_secrets(self, names: Collection[str]) -> None:
        """Connect anew the servers whose secrets have changed; those that are stopped take them at their next start."""
        for name, config in list(self._configs.items()):
            if names_secret(config, names):
                with suppress(NoSuchServer):  # removed meanwhile
                    if self.named(name).state is not ServerState.STOPPED:
                        await self.manager.reconnect(name)

    def not_signed_in(self, state: str, reason: str) -> str:
        """A person came back without a permission. The server's name. Raises SignInFailed."""
        return self._sign_ins.refuse(state, reason)

    def _audit(self, name: str, decision: str, by: str, why: str = "") -> AuditRow:
        return AuditRow(time.time(), by, f"mcp {name}", decision, why=self._redactor.redact(why[:500]), by=by)


def _state_of(file: Path | None) -> Stamp | None:
    """A value that changes when the file does; None while there is none."""
    with suppress(OSError):
        return stamp_of(file.stat()) if file else None
    return None


def _log(event: McpEvent) -> None:
    match event:
        case ServerChanged(status) if status.state in (ServerState.FAILED, ServerState.NEEDS_AUTH):
            logger.warning("MCP server %s: %s %s", status.name, status.state, status.error)
        case ServerChanged(status):
            logger.info("MCP server %s: %s", status.name, status.state)
            if status.state is ServerState.READY and not status.tools and status.notes:
                logger.warning("MCP server %s: %s", status.name, " ".join(status.notes))
        case ToolsChanged(server, added, removed, held):
            logger.info("MCP server %s: new tools %s, gone %s", server, added, removed)
            for one in held:
                logger.warning("MCP server %s: its tool %s is held: %s", server, one.tool, one.why)
