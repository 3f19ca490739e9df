"""The status of a server, as shown on the page and in the API."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from urllib.parse import urlsplit

from tools.mcp.connection.failure_reasons import request_for_key
from tools.mcp.model import ServerConfig, ServerState, Status
from tools.mcp.server import Server

_CHARACTERS_PER_TOKEN = 4
TAIL = 50  # lines of a server that is ready, in which it may have asked for a key


def status_of(server: Server) -> Status:
    session, catalogue, config = server.session, server.catalogue, server.config
    listed = catalogue.listed.values()
    characters = sum(len(one.name) + len(one.description) + len(json.dumps(one.parameters)) for one in listed)
    is_up = session is not None and not session.gone
    return Status(
        name=config.name,
        state=server.state,
        transport=config.transport,
        target=target_of(config),
        from_api=config.from_api,
        error=server.failure or server.error,
        stderr_tail=server.log.tail() if server.state is not ServerState.READY else (),
        tools=tuple(sorted(name for name, _ in server.listed())),
        held=tuple(catalogue.held.values()),
        pid=session.pid if session and is_up else None,
        exit_code=session.exit_code if session else None,
        protocol=session.protocol if session else "",
        connect_ms=server.connect_ms,
        restarts=server.restarts,
        next_try=server.next_try if server.state is ServerState.FAILED else None,
        auth_url=server.auth_url,
        calls=server.calls,
        token_estimate=characters // _CHARACTERS_PER_TOKEN,
        junk_lines=session.traffic.junk if session else 0,
        notes=(*config.notes, *catalogue.notes, *_lacks(server)),
        instructions=catalogue.instructions,
        features=tuple(catalogue.features),
    )


def _lacks(server: Server) -> Sequence[str]:
    """Say what a server asks for that has nothing to offer."""
    if server.state is not ServerState.READY or server.catalogue.listed or server.catalogue.features:
        return ()
    wanted = request_for_key(server.log.tail(TAIL))
    return (f"It has no tools; it wrote: {wanted}",) if wanted else ()


def target_of(config: ServerConfig) -> str:
    """Return the command line, or the URL without query and credentials."""
    if config.transport == "stdio":
        return shlex.join([config.command, *config.args])
    parts = urlsplit(config.url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl()
