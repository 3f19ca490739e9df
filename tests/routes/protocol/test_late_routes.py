"""Routes that are imported with the first request for one of them."""

from __future__ import annotations

import asyncio
import gc
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import httpx2
import pytest
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match

from app.models.scripted import Scripted
from routes.catalogue import EARLY, late_routes
from routes.lanes.catalogue import LANES
from routes.lanes.error_shapes import BUILT_IN
from routes.protocol.application import Answered, AnswerMiddleware, ServedRoute, StreamingApplication
from routes.protocol.errors import ASCIIResponse, native_error
from routes.protocol.route import Route
from routes.server import create_server
from tests import ROOT
from tests.support.server.serving import listening, serving

pytestmark = pytest.mark.anyio
LIMIT_S = 30


async def shown(request: Request) -> Response:
    return ASCIIResponse({"path": request.url.path, "method": request.method})


def rows(*names: str) -> list[Route]:
    return [Route(name, shown, rights="open") for name in names]


async def test_they_are_imported_once_with_the_first_request_for_one() -> None:
    imports: list[StreamingApplication] = []

    def late(server: StreamingApplication) -> Sequence[Route]:
        with pytest.raises(RuntimeError):
            asyncio.get_running_loop()  # another thread: the event loop goes on
        imports.append(server)
        return rows("GET /late", "DELETE /early")

    answers = Middleware(AnswerMiddleware, answer=native_error, observe=list[Answered]().append)
    app = StreamingApplication(routes=rows("GET /early"), late=late, middleware=[answers])
    async with asyncio.timeout(LIMIT_S), listening(app) as port, httpx2.AsyncClient(trust_env=False) as client:
        url = f"http://127.0.0.1:{port}"
        assert (await client.get(f"{url}/early")).status_code == 200
        assert imports == []
        late_ones = [client.get(f"{url}/late"), client.delete(f"{url}/early"), client.get(f"{url}/late")]
        assert [one.status_code for one in await asyncio.gather(*late_ones)] == [200, 200, 200]
        assert [(await client.request(*one)).status_code for one in (("GET", f"{url}/x"), ("POST", f"{url}/late"))] == [
            404,
            405,
        ]
    assert imports == [app]
    assert [route.row.name for route in await app.all_routes()] == ["GET /early", "GET /late", "DELETE /early"]


async def test_an_import_that_fails_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, Scripted([])) as served:
        server, outboxes = create_server(served.services), served.services.runs.outboxes
        before, frozen = len(outboxes), gc.get_freeze_count()
        with monkeypatch.context() as broken:
            broken.setitem(sys.modules, "routes.http.proofs", None)
            with pytest.raises(ImportError):
                await server.all_routes()
        assert "GET /proof" in [route.row.name for route in await server.all_routes()]
    assert len(outboxes) == before + 1
    assert gc.get_freeze_count() <= frozen, "what is alive now may become garbage"


def test_a_worker_has_all_routes_from_its_start(tmp_path: Path) -> None:
    """Later, they could be those of the next version, which is installed while it serves."""
    folders = ("--data-dir", str(tmp_path / "data"), "--workspace", str(tmp_path / "work"))
    words = ("-X", "importtime", "-m", "routes.cli.main", "serve", "--as-worker", "1", "1")
    environ = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "DRAGOMAN_MODEL_URL": "scripted:"}
    parent, worker = socket.socketpair()
    parent.close()  # its end is the worker's
    with worker:
        ended = subprocess.run(
            [sys.executable, *words, *folders],
            stdin=worker.fileno(),
            env=environ,
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=True,
        )
    assert "routes.http.workspace.browsing" in ended.stderr


def taken(routes: Iterable[Route], by: Iterable[Route]) -> list[tuple[str, str]]:
    """The rows whose requests one of the others would take."""
    others = [ServedRoute(row) for row in by]
    found = []
    for row in routes:
        scope = {"type": "http", "method": row.method, "path": re.sub(r"\{.*?\}", "x", row.path)}
        found += [(row.name, one.row.name) for one in others if one.matches(scope)[0] is Match.FULL]
    return found


def test_no_early_route_takes_the_requests_of_a_late_one() -> None:
    assert taken(late_routes(), by=EARLY) == []


def test_errors_of_lanes_have_their_shape_before_they_are_imported() -> None:
    assert {lane.path: lane.error for lane in LANES} == BUILT_IN
