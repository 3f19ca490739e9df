"""A running server's MCP servers and endpoints, for the command line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import httpx2

from routes.access.token_auth import NotProven, TokenAuth, is_local
from routes.terminal.chat import checked_token, checked_url
from routes.terminal.event_client import refusal

LIMIT_S = 15.0


class NoServer(Exception):
    """No server of ours answers there."""


class Refusal(Exception):
    """The server would not. `missing`: there is no such thing."""

    def __init__(self, message: str, *, missing: bool) -> None:
        super().__init__(message)
        self.missing = missing


class Remote:
    """The server at `url`. Every method raises NoServer, Refusal, ChatFailed."""

    def __init__(self, url: str, token: str | None, own: str | None = None) -> None:
        """`own` is the token of this account's own server, for where the system does not tell accounts apart."""
        self._url = checked_url(url)
        self._auth = TokenAuth(checked_token(token) if token else None, own)

    def servers(self) -> tuple[list[dict[str, Any]], str | None]:
        """All MCP servers, and the problems of the file."""
        answer = self._ask("GET", "/mcp/servers")
        return answer["servers"], answer["problem"]

    def endpoints(self) -> list[dict[str, Any]]:
        """The endpoints of models, as admins see them."""
        endpoints: list[dict[str, Any]] = self._ask("GET", "/endpoints")["endpoints"]
        return endpoints

    def served_models(self) -> dict[str, Any]:
        """The model files that the server has, and their states."""
        return self._ask("GET", "/served-models")

    def project_files(self) -> list[dict[str, Any]]:
        """The instructions in the caller's workspace, with their text."""
        files: list[dict[str, Any]] = self._ask("GET", "/project")["files"]
        return files

    def decide_on_file(self, path: str, digest: str, decision: str) -> dict[str, Any]:
        return self._ask("POST", "/project", {"path": path, "digest": digest, "decision": decision})

    def call(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Make a request; an answer without a body is empty."""
        return self._ask(method, path, body)

    def logs(self, name: str) -> list[str]:
        lines: list[str] = self._ask("GET", f"/mcp/servers/{quote(name, safe='')}/logs")["lines"]
        return lines

    def remove(self, name: str) -> None:
        self._ask("DELETE", f"/mcp/servers/{quote(name, safe='')}")

    def act(self, name: str, action: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        return self._ask("POST", f"/mcp/servers/{quote(name, safe='')}/{action}", body)

    def automation(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Schedules and triggers: the answer to a request with a path below theirs."""
        return self._ask(method, path, body)

    @staticmethod
    def quoted(name: str) -> str:
        """A name as one step of a path."""
        return quote(name, safe="")

    def _ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        try:
            answer = httpx2.request(
                method,
                f"{self._url}{path}",
                auth=self._auth,
                json=body,
                timeout=LIMIT_S,
                trust_env=not is_local(self._url),
            )
        except NotProven as error:
            raise Refusal(str(error), missing=False) from error
        except httpx2.TransportError as error:
            raise NoServer(f"No dragoman server answers at {self._url}. Start it with `dragoman serve`.") from error
        if not answer.is_success:
            raise Refusal(refusal(answer.status_code, answer.content), missing=answer.status_code == 404)
        fields: dict[str, Any] = answer.json() if answer.content else {}
        return fields
