"""A running server, for the commands that ask it."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from typing import Any

import httpx2

from app.config.settings import Loaded, Settings
from routes.access.local_admin import read_local_token
from routes.access.token_auth import NotProven, TokenAuth, is_local
from routes.cli.columns import failed
from routes.terminal.chat import checked_token, checked_url, default_url
from routes.terminal.event_client import ChatFailed, refusal

LIMIT_S = 15.0


class NoServer(Exception):
    """No server of ours answers there."""


class Refusal(Exception):
    """The server would not."""


class Remote:
    """The server at `url`. Raises ChatFailed for a URL or a token that cannot be one."""

    def __init__(self, url: str, token: str | None, own: str | None) -> None:
        """`own` is the token of this account's own server, for where the system does not tell accounts apart."""
        self.url = checked_url(url)
        self._auth = TokenAuth(checked_token(token) if token else None, own)

    def call(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        limit_s: float = LIMIT_S,
        *,
        content: bytes | None = None,
    ) -> dict[str, Any]:
        """Make a request with JSON or a file's content; an answer without a body is empty. Raises NoServer, Refusal."""
        try:
            answer = httpx2.request(
                method,
                f"{self.url}{path}",
                auth=self._auth,
                json=body,
                content=content,
                timeout=limit_s,
                trust_env=not is_local(self.url),
            )
        except NotProven as error:
            raise Refusal(str(error)) from error
        except httpx2.TransportError as error:
            advice = "Start it with `dragoman serve`, or set DRAGOMAN_URL to its address."
            raise NoServer(f"No dragoman server answers at {self.url}. {advice}") from error
        if not answer.is_success:
            raise Refusal(refusal(answer.status_code, answer.content))
        fields: dict[str, Any] = answer.json() if answer.content else {}
        return fields


def server_flags(parser: argparse.ArgumentParser, token: str = "a token") -> None:
    """The flags that say which server is asked, and with which token."""
    parser.add_argument("--server", metavar="URL", help="the address of the running server; also DRAGOMAN_URL")
    parser.add_argument("--token", help=f"{token} for it; DRAGOMAN_TOKEN is safer, because others can see flags")


def remote_of(args: argparse.Namespace, settings: Settings, environ: Mapping[str, str]) -> Remote:
    """The server of these flags, else of the environment, else of the settings. Raises ChatFailed."""
    url = args.server or environ.get("DRAGOMAN_URL") or default_url(settings)
    return Remote(url, args.token or environ.get("DRAGOMAN_TOKEN") or None, read_local_token(settings.data_dir))


def with_remote(
    args: argparse.Namespace, loaded: Loaded, environ: Mapping[str, str], work: Callable[[Remote], int]
) -> int:
    """Do something with the running server; exit code 1 when it cannot be done, with the reason on stderr."""
    try:
        return work(remote_of(args, loaded.settings, environ))
    except (NoServer, Refusal, ChatFailed) as failure:
        return failed(failure)
