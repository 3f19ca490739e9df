"""Web servers on this machine, which a command reaches through the proxy."""

from __future__ import annotations

import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import trustme

THERE = "127.0.0.2"  # an address that no program takes for its own, so that it asks the proxy


@dataclass
class Site:
    """A real web server on this machine, which a test may name as a private host."""

    port: int
    pages: dict[str, bytes] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    moved: dict[str, str] = field(default_factory=dict)

    @property
    def host(self) -> str:
        return f"{THERE}:{self.port}"

    @property
    def url(self) -> str:
        return f"http://{self.host}"


@contextmanager
def site(pages: Mapping[str, bytes] = {}, certificate: trustme.LeafCert | None = None) -> Iterator[Site]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            there.asked.append(self.path)
            page = there.pages.get(self.path.partition("?")[0])
            self.send_response(302 if self.path in there.moved else 404 if page is None else 200)
            if self.path in there.moved:
                self.send_header("Location", there.moved[self.path])
            self.send_header("Content-Length", str(len(page or b"")))
            self.send_header("Content-Type", "application/json" if (page or b"").startswith(b"{") else "text/html")
            self.end_headers()
            self.wfile.write(page or b"")

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with ThreadingHTTPServer((THERE, 0), Handler) as server:
        there = Site(server.server_address[1], dict(pages))
        if certificate:
            context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            certificate.configure_cert(context)
            server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield there
        finally:
            server.shutdown()
            thread.join(10)
