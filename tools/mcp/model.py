"""Types for MCP servers: configuration, status, trust pins, held tools, events and hooks."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from msgspec import Struct, field

from tools.base.hidden_fields import repr_without
from tools.base.rights import Origin, Trust
from tools.tool import Context

if TYPE_CHECKING:
    import httpx2

Transport = Literal["stdio", "http", "sse"]
INSTRUCTIONS = ""  # in place of a tool's name: the server's own instructions


class Timeouts(Struct, frozen=True):
    """Timeouts in seconds: until a server is ready, between two progress messages of a call, and of a call in all."""

    start_s: float = 30.0
    idle_s: float = 60.0
    total_s: float = 600.0


class ServerConfig(Struct, frozen=True):
    """One server. All variables are filled in; an entry that could not be read has a `problem` and never starts."""

    name: str
    transport: Transport = "stdio"
    command: str = ""
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    cwd: Path | None = None
    url: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    client_id: str = ""  # of a registered OAuth client; without it the client registers dynamically
    client_secret: str = ""
    enabled: bool = True
    eager: bool = False  # connected from the start and kept so, instead of at the first call
    include: tuple[str, ...] = ()  # globs of tool names; none means all
    exclude: tuple[str, ...] = ()
    timeouts: Timeouts = Timeouts()
    tool_timeouts: Mapping[str, Timeouts] = field(default_factory=dict)
    concurrency: int = 8
    idle_stop_s: float | None = 600.0  # an idle lazy server is stopped after this
    new_tools: Literal["allow", "hold"] = "allow"  # treatment of tools that appear after the first connection
    from_api: bool = False  # added at run time: its URL must be public, or allowed by private_hosts
    trust: Trust | None = None  # as the file declares it
    tool_trust: Mapping[str, Trust] = field(default_factory=dict)  # the same by tool
    app_domains: tuple[str, ...] = ()  # globs of origins that its apps may use, as the file allows them
    notes: tuple[str, ...] = ()  # about fields that are ignored
    problem: str = ""

    __repr__ = repr_without("client_secret")


class ServerState(StrEnum):
    """The state of a server."""

    STOPPED = "stopped"  # starts at the next call
    CONNECTING = "connecting"
    READY = "ready"
    FAILED = "failed"  # `next_try` is the earliest time of a retry, by itself or by a call
    NEEDS_AUTH = "needs_auth"  # a person must open `auth_url`
    DISABLED = "disabled"


class HeldTool(Struct, frozen=True):
    """A tool that is neither listed nor callable until it is approved. `diff` is old against new, as text.

    `digest` is of the definition offered now, so that an approval can name what was reviewed.
    """

    tool: str
    why: str
    diff: str = ""
    digest: str = ""


class NoSuchServer(Exception):
    """No MCP server has this name."""

    def __init__(self, name: str) -> None:
        super().__init__(f"There is no MCP server {name[:80]!a}. GET /mcp/servers lists them.")


class HeldChanged(Exception):
    """The server's definition has changed since it was reviewed."""


class Status(Struct, frozen=True):
    """A server as it is now. `tools` are public names; times are seconds since the epoch.

    `error` is that of the last attempt until the server is connected, with its last words.
    """

    name: str
    state: ServerState
    transport: Transport
    target: str  # the command line, or the URL without its query
    from_api: bool = False
    error: str = ""
    stderr_tail: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()
    held: tuple[HeldTool, ...] = ()
    pid: int | None = None
    exit_code: int | None = None
    protocol: str = ""
    connect_ms: float | None = None
    restarts: int = 0
    next_try: float | None = None
    auth_url: str = ""
    calls: int = 0  # under way
    token_estimate: int = 0  # of the definitions that are listed
    junk_lines: int = 0
    notes: tuple[str, ...] = ()  # what was repaired or left out of its definitions, and what it lacks
    instructions: str = ""
    features: tuple[str, ...] = ()  # `resources`, `prompts`: what it listed besides tools


class Pin(Struct, frozen=True):
    """A trusted definition of `tool`, and the hash that later ones must have.

    `identity` is the hash of what runs (command, arguments and folder, or URL); another identity is another server. One
    that is not `listed` was offered once: it comes back only as it was, or held.
    """

    server: str
    identity: str
    tool: str
    digest: str
    definition: Mapping[str, Any]
    listed: bool = True


class PinStore(Protocol):
    """Persistent storage of pins."""

    async def pins(self) -> Sequence[Pin]: ...

    async def keep(self, pins: Sequence[Pin]) -> None:
        """Add, or replace those of the same server and tool."""

    async def forget(self, server: str, tools: Sequence[str] | None = None) -> None:
        """Remove a server's pins: of some tools, or all."""


class MemoryPinStore:
    """A PinStore in memory."""

    def __init__(self) -> None:
        self._kept: dict[tuple[str, str], Pin] = {}

    async def pins(self) -> Sequence[Pin]:
        return list(self._kept.values())

    async def keep(self, pins: Sequence[Pin]) -> None:
        self._kept.update({(pin.server, pin.tool): pin for pin in pins})

    async def forget(self, server: str, tools: Sequence[str] | None = None) -> None:
        for key in [key for key in self._kept if key[0] == server and (tools is None or key[1] in tools)]:
            del self._kept[key]


class ElicitationQuestion(Struct, frozen=True):
    """A question of a server to a person. `schema` is a form's, `url` a page to open; `tool` and `context` belong to
    the call that it interrupts, None when that is unknown."""

    server: str
    message: str
    schema: Mapping[str, Any] | None = None
    url: str = ""
    tool: str | None = None
    context: Context | None = None

    def with_defaults(self, content: dict[str, Any]) -> dict[str, Any]:
        """Return an answer, with the form's defaults for the fields that it leaves out."""
        fields = (self.schema or {}).get("properties")
        named = fields.items() if isinstance(fields, dict) else ()
        return {name: one["default"] for name, one in named if isinstance(one, dict) and "default" in one} | content


class ElicitationAnswer(Struct, frozen=True):
    """The answer to a question. Only `accept` has content."""

    action: Literal["accept", "decline", "cancel"] = "decline"
    content: Mapping[str, Any] | None = None


class ServerChanged(Struct, frozen=True):
    """The state of a server has changed."""

    status: Status


class ToolsChanged(Struct, frozen=True):
    """The tools of a server have changed. A renamed tool is one removed and one added."""

    server: str
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    held: tuple[HeldTool, ...] = ()


McpEvent = ServerChanged | ToolsChanged

Elicit = Callable[[ElicitationQuestion], Awaitable[ElicitationAnswer]]
"""Ask a person. The call's timeout is suspended meanwhile; the implementation bounds the wait."""


EasedBy = Callable[[str, Origin], str]


class NeedsAuth(Exception):
    """Raised by an `auth` when only a person can go on: `url` is what they must open."""

    def __init__(self, url: str) -> None:
        super().__init__("The server requires a sign-in.")
        self.url = url


class SignInFailed(Exception):
    """A sign-in cannot go on. The message says what to do next."""


class Operation(Struct, frozen=True):
    """A request to a server, as an observer of the host sees it.

    `target` is the name of a tool, empty for other methods; `context` is the call's.

    `url` is empty for a server that is a process.
    """

    server: str
    url: str
    protocol: str
    method: str
    target: str
    context: Context


class OperationEnd(Struct):
    """The end of an operation: `error` is `tool_error` or a code of JSON-RPC; None after a success.

    Any other exception passes through the context manager.
    """

    error: str | None = None
    status_code: int | None = None


ObserveOperation = Callable[[Operation], AbstractContextManager[OperationEnd]]
"""Surrounds an operation, in a task of its own. On leaving, the end says what became of it."""


class Hooks(Struct, frozen=True):
    """Callbacks of the host, all optional. Without `elicit` the client does not announce elicitation to servers.

    `eased_by` names the rule or the declaration that gives a tool, by its public name and origin, fewer checks than an
    unclassified one has; empty if there is none.
    `keep` stores content that is not text, and returns a description of it for the model.
    `observe` sees each request of a call. `complete` puts secrets into a configuration; it raises CannotStart.
    """

    elicit: Elicit | None = None
    on_event: Callable[[McpEvent], None] | None = None
    auth: Callable[[ServerConfig], httpx2.Auth | None] | None = None
    eased_by: EasedBy | None = None
    keep: Callable[[Context, bytes], Awaitable[str]] | None = None
    observe: ObserveOperation | None = None
    complete: Callable[[ServerConfig], Awaitable[ServerConfig]] | None = None
