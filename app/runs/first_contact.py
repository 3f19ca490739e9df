"""The first contact with MCP servers whose tools were never listed: a run waits for them, briefly, and says so."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence

from msgspec import Struct

from app.core.events import AgentEvent, Notice
from app.core.rules import ToolRule
from app.mcp.servers import McpServers
from app.policy.gate import Gate
from tools.mcp.model import ServerState, Status
from tools.mcp.names import has_prefix
from tools.toolbox import Refuse, Toolbox

MOST_NAMED = 5
MOST_REASON = 200  # characters of why a server is missing
SAMPLE = "tool"  # in place of a name that no pattern mentions
NOT_YET = (ServerState.STOPPED, ServerState.CONNECTING)
WAITING = "Waiting for MCP servers whose tools are not known yet: {names}."
MISSING = "This turn has no tools of these MCP servers: {names}."


class FirstContact(Struct):
    """The servers that were unseen when the run was made. `toolbox` makes the run's toolbox again, as it is by then.

    `allowed` are the names of the tools that the request allows, None if it allows all.
    """

    servers: McpServers
    gate: Gate
    rules: Sequence[ToolRule]
    allowed: Collection[str] | None
    limit_s: float
    toolbox: Callable[[], Toolbox]
    unseen: Sequence[str]

    async def wait(self, emit: Callable[[AgentEvent], Awaitable[None]], *, begins_session: bool) -> Toolbox | None:
        """Wait for servers whose tools the run may use; return the run's toolbox if that is another one now.

        A server that is missing is reported by the run that has waited for it, and in the first turn of a session.
        """
        names = [name for name in self._still_unseen() if self._may_use(name)]
        if awaited := self.servers.manager.begin_first_wait(names, self.limit_s):
            await emit(Notice("mcp_waiting", WAITING.format(names=_listed(awaited))))
            await self.servers.manager.first_wait(awaited)
        still = self._still_unseen()
        missing = [one for one in self.servers.status() if one.name in names and one.name in still]
        if missing and (awaited or begins_session):
            await emit(Notice("mcp_missing", MISSING.format(names=_listed(map(self._described, missing)))))
        return self.toolbox() if len(still) < len(self.unseen) else None

    def _still_unseen(self) -> list[str]:
        unseen = self.servers.manager.unseen()
        return [name for name in self.unseen if name in unseen]

    def _may_use(self, server: str) -> bool:
        """Return whether the gate could offer any tool of the server, by the names that rules and rights mention."""
        if self.allowed is not None and not any(has_prefix(name, server) for name in self.allowed):
            return False
        gate = self.gate.acting()
        patterns = [*(rule.match for rule in self.rules), *gate.principal.tools]
        mentioned = {SAMPLE, *(pattern.rpartition("__")[2].strip("*") for pattern in patterns)} - {""}
        classified = self.servers.trust.classification.of
        samples = (classified(self.servers.manager.sample(server, tool)) for tool in mentioned)
        return any(not isinstance(gate.decide(tool), Refuse) for tool in samples)

    def _described(self, status: Status) -> str:
        if status.state is ServerState.NEEDS_AUTH:
            return f"{status.name} (it requires a sign-in)"
        if status.state is ServerState.CONNECTING and not status.error:
            return f"{status.name} (it is still starting)"
        error = self.servers.redact(status.error)[:MOST_REASON]  # before a cut makes a secret another text
        return f"{status.name} ({error or status.state})"


def is_expected(name: str, servers: McpServers) -> bool:
    """Return whether a tool of this name may come with a server that is connecting for the first time."""
    unseen = servers.manager.unseen()
    coming = (one.name for one in servers.status() if one.name in unseen and one.state in NOT_YET) if unseen else ()
    return any(has_prefix(name, server) for server in coming)


def _listed(names: Iterable[str]) -> str:
    shown = list(names)
    more = f" and {len(shown) - MOST_NAMED} more" if len(shown) > MOST_NAMED else ""
    return f"{', '.join(shown[:MOST_NAMED])}{more}"
