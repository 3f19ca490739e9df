"""A model hub on a real socket: its list of files, and the files behind a redirect, with Range, ETag and faults."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
from asyncio import StreamReader, StreamWriter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.support.models.upstream import Upstream, answer, hang, upstream

TOKEN = "hf_" + "x" * 20
BLOCK = 1 << 16


@dataclass
class Hub:
    """`files` by repository and path. The faults are of the host that redirects lead to."""

    files: dict[str, dict[str, bytes]]
    gated: bool = False
    ranges: bool = True
    etag: str | None = None  # in place of the one that belongs to the content
    checksum: str | None = None  # of the list, in place of the true one; "" for none
    cuts: list[int] = field(default_factory=list)  # the bytes after which the next answers break off
    status: list[int] = field(default_factory=list)  # of the next answers
    held_at: int | None = None  # the byte at which answers go no further
    held: asyncio.Event = field(default_factory=asyncio.Event)
    released: asyncio.Event = field(default_factory=asyncio.Event)  # what is held breaks off
    endless: bool = False
    move_to: str = "/cdn"
    server: Upstream = field(default_factory=Upstream)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.port}"

    @property
    def sent_from(self) -> list[str]:
        """The ranges that were requested of files."""
        return [one.headers.get("range", "") for one in self.server.asked if one.path.startswith("/cdn/")]

    async def __call__(self, reader: StreamReader, writer: StreamWriter) -> None:
        asked = self.server.asked[-1]
        if self.gated and asked.headers.get("authorization") != f"Bearer {TOKEN}":
            await answer('{"error":"Access is restricted"}', 401)(reader, writer)
            return
        path = asked.path.partition("?")[0]
        if found := re.fullmatch(r"/api/models/([^/]+/[^/]+)/tree/main", path):
            files = self.files.get(found[1])
            await answer(json.dumps([*map(self._row, (files or {}).items())]), 200 if files else 404)(reader, writer)
        elif found := re.fullmatch(r"/([^/]+/[^/]+)/resolve/main/(.+)", path):
            content = self.files.get(found[1], {}).get(found[2])
            more = {} if content is None else {"X_Linked_Etag": f'"{self._sha256(content)}"'}
            status = 302 if content is not None else 404
            await answer(b"", status, Location=f"{self.move_to}{path}", **more)(reader, writer)
        elif not path.startswith("/cdn/"):
            await answer("{}", 404)(reader, writer)
        else:
            repo, _, name = path.removeprefix("/cdn/").partition("/resolve/main/")
            await self._send(self.files[repo][name], asked.headers, reader, writer)

    async def client_reads(self) -> None:
        """Let the client of this loop go on."""
        await asyncio.sleep(0)

    def _sha256(self, content: bytes) -> str:
        return hashlib.sha256(content).hexdigest() if self.checksum is None else self.checksum

    def _row(self, item: tuple[str, bytes]) -> dict[str, Any]:
        lfs = {"oid": self._sha256(item[1]), "size": len(item[1]), "pointerSize": 134}
        return {"type": "file", "oid": "0" * 40, "size": len(item[1]), "path": item[0], "lfs": lfs}

    async def _send(self, content: bytes, headers: Any, reader: StreamReader, writer: StreamWriter) -> None:
        if self.status:
            await answer(b"", self.status.pop(0))(reader, writer)
            return
        etag = self.etag or f'"{hashlib.md5(content).hexdigest()}"'
        start, head = 0, "200 OK"
        wanted = re.fullmatch(r"bytes=(\d+)-", headers.get("range", ""))
        if self.ranges and wanted and headers.get("if-range", etag) == etag:
            start, head = int(wanted[1]), "206 Partial\r\ncontent-range: bytes {}-{}/{}"
            head = head.format(start, len(content) - 1, len(content))
        length = "transfer-encoding: chunked" if self.endless else f"content-length: {len(content) - start}"
        writer.write(f"HTTP/1.1 {head}\r\netag: {etag}\r\n{length}\r\n\r\n".encode())
        while self.endless:
            writer.write(b"%x\r\n%s\r\n" % (len(content), content))
            await writer.drain()
        end = min(self.cuts.pop(0) if self.cuts else len(content), self.held_at or len(content))
        for at in range(start, max(end, start), BLOCK):
            writer.write(content[at : min(at + BLOCK, end)])
            await writer.drain()
        if self.held_at and end == self.held_at:
            self.held.set()
            waits = [asyncio.create_task(hang(reader, writer)), asyncio.create_task(self.released.wait())]
            ended, others = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            for other in others:
                other.cancel()
            for one in ended:
                await one
        if end < len(content):
            writer.close()


@asynccontextmanager
async def model_hub(files: dict[str, dict[str, bytes]], **faults: Any) -> AsyncGenerator[Hub, None]:
    hub = Hub(files, **faults)
    async with upstream(hub, repeat=True) as hub.server:
        yield hub
