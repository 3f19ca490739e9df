"""A real HTTPS server of this machine that wants credentials: git repositories, package indexes, and an echo."""

from __future__ import annotations

import json
import os
import ssl
import subprocess
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import trustme

from tests.support.sandbox.sites import THERE
from tools.sandbox.network.secrets import BoxSecret

VALUE = "ghs_QmVyZ2tpcmNoZTE5ODQ"
MARK = "phs_ZmFjdG9yeVBsYWNlaG9"  # as long as the value
PATTERN = "ghs_[A-Za-z0-9]{12,}"  # finds the value, and does not hold it
LIMIT_S = 60


@dataclass
class PrivateSite:
    """`authority` is the file of the authority that its certificate is of; `seen` are the credentials of requests."""

    port: int
    authority: Path
    repositories: Path
    scheme: str = "https"
    pages: dict[str, bytes] = field(default_factory=dict)
    seen: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    @property
    def host(self) -> str:
        return f"{THERE}:{self.port}"

    @property
    def url(self) -> str:
        return f"{self.scheme}://{self.host}"

    def secret(self, **more: Any) -> BoxSecret:
        """The secret that it wants."""
        fields = {"name": "git", "variable": "TOKEN", "placeholder": MARK, "value": VALUE, "hosts": (self.url,)}
        return BoxSecret(**fields | more)


def _accepted(value: str) -> set[str]:
    users = ("me", "x-access-token", "__token__")
    basic = {f"Basic {b64encode(f'{user}:{value}'.encode()).decode()}" for user in users}
    return {f"Bearer {value}", f"token {value}", *basic}


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, there: PrivateSite, accepted: set[str]) -> None:
        self.there, self.accepted = there, accepted
        super().__init__((THERE, 0), _Handler)
        there.port = self.server_address[1]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def do_GET(self) -> None:
        there, body = self.server.there, self._body()
        there.requests.append(f"{self.command} {self.path}")
        given = self.headers.get("Authorization", "")
        if given:
            there.seen.append(given)
        path = self.path.partition("?")[0]
        if given not in self.server.accepted:
            self._answer(401, b"who are you?", ("WWW-Authenticate", 'Basic realm="git"'))
        elif path.startswith("/git/"):
            self._git(path, body)
        elif path == "/echo":
            self._answer(200, json.dumps(dict(self.headers.items())).encode(), ("X-Seen", given))
        elif path == "/moved":
            self._answer(302, b"", ("Location", f"http://{THERE}:1/?{given.split()[-1]}"))
        else:
            page = there.pages.get(path)
            kind = "application/json" if (page or b"").startswith(b"{") else "text/html"
            self._answer(404 if page is None else 200, page or b"", ("Content-Type", kind))

    do_POST = do_PUT = do_DELETE = do_GET

    def _body(self) -> bytes:
        if "chunked" not in self.headers.get("Transfer-Encoding", ""):
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        body = bytearray()
        while size := int(self.rfile.readline(), 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return bytes(body)

    def _answer(self, status: int, body: bytes, *headers: tuple[str, str]) -> None:
        self.send_response(status)
        for name, value in (("Content-Length", str(len(body))), *headers):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def _git(self, path: str, body: bytes) -> None:
        """By git's own CGI program."""
        environment = {
            "PATH": os.environ["PATH"],
            "GIT_PROJECT_ROOT": str(self.server.there.repositories),
            "GIT_HTTP_EXPORT_ALL": "1",
            "REMOTE_USER": "me",
            "REQUEST_METHOD": self.command,
            "PATH_INFO": path.removeprefix("/git"),
            "QUERY_STRING": self.path.partition("?")[2],
            "CONTENT_TYPE": self.headers.get("Content-Type", ""),
            "CONTENT_LENGTH": str(len(body)),
            "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
            "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
        }
        command = ["git", "http-backend"]
        ran = subprocess.run(command, input=body, env=environment, capture_output=True, timeout=LIMIT_S, check=True)
        head, _, content = ran.stdout.partition(b"\r\n\r\n")
        headers = dict(line.split(": ", 1) for line in head.decode().split("\r\n"))
        status = int(headers.pop("Status", "200").split()[0])
        self._answer(status, content, *headers.items())

    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextmanager
def private_site(folder: Path, value: str = VALUE, *, tls: bool = True) -> Iterator[PrivateSite]:
    """`folder` gets the repositories and the authority's file."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(folder / "authority.pem"))
    there = PrivateSite(0, folder / "authority.pem", folder / "repositories", "https" if tls else "http")
    there.repositories.mkdir()
    with _Server(there, _accepted(value)) as server:
        if tls:
            context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            authority.issue_cert(THERE).configure_cert(context)
            server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
        thread = Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield there
        finally:
            server.shutdown()
            thread.join(10)
