"""The log as JSON: each line is an object, with the ids of what it is about, and no secret is in it."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import os
import re
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing, asynccontextmanager, contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx2
import pytest

from app.core.log_context import enter_request, log_context
from app.core.provider import ModelRequest, Piece
from app.models.scripted import Scripted
from app.redaction.logs import ACCESS, JsonFormatter, redacted_logs
from app.redaction.redactor import MARK, Redactor
from tests.support.server.dragoman_process import run_dragoman, started
from tests.support.server.serving import NO_TLS, serving

LIMIT_S = 60
KEY = "sk-" + "a1B2c3D4" * 6


class Breaks(Scripted):
    """A model whose code has a bug."""

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Piece, None]:
        async with aclosing(super().stream(request)) as pieces:
            async for piece in pieces:
                yield piece
                raise LookupError(f"no {KEY}\nand a second line")


@contextmanager
def logged() -> Iterator[io.StringIO]:
    """All that is logged meanwhile, as JSON."""
    written, root = io.StringIO(), logging.getLogger()
    handler = logging.StreamHandler(written)
    handler.setFormatter(JsonFormatter())
    root.addHandler(handler)
    try:
        yield written
    finally:
        root.removeHandler(handler)


def records(text: str) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in text.splitlines()]
    assert all(datetime.fromisoformat(one["time"]).tzinfo and one["level"] and one["logger"] for one in found)
    return found


@pytest.mark.anyio
async def test_a_record_names_run_session_and_request(tmp_path: Path) -> None:
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, Breaks(["Hello."]), model_key=KEY) as served:
        with logged() as written:
            served.client.headers["x-request-id"] = "edge-7"
            first, *_, last = await served.chat()
    assert last["code"] == "internal"
    (record,) = records(written.getvalue())
    assert (record["run"], record["session"]) == (first["run"], first["session"])
    assert (record["request"], record["principal"], record["level"]) == ("edge-7", "local", "error")
    assert record["exception"].startswith("Traceback") and "LookupError" in record["exception"]
    assert KEY not in written.getvalue() and MARK in record["exception"]
    assert written.getvalue().isascii()


@pytest.mark.parametrize("given", [None, "", "x" * 65, "two words", "a\nb", "ü"])
def test_an_id_that_cannot_be_used_is_replaced(given: str | None) -> None:
    enter_request(given)
    assert re.fullmatch(r"req_[0-9a-f]{16}", log_context().request)


def test_every_record_is_one_line_of_json() -> None:
    written = io.StringIO()
    handler = logging.StreamHandler(written)
    handler.setFormatter(JsonFormatter())
    logger = logging.Logger("test")
    logger.addHandler(handler)
    with redacted_logs(Redactor([KEY])):
        logger.error("two\nlines, \u2028 and %s \ud800", KEY)
        logger.warning("%d and %s", "too few")
        logger.info("an object: %s", {"key": KEY})
        logger.info("stack", stack_info=True)
        access = logging.Logger(ACCESS)
        access.addHandler(handler)
        access.info('%s - "%s %s HTTP/%s" %d', "127.0.0.1:1", "GET", f"/runs/{KEY}", "1.1", 404)
    broken, unfit, _, stack, request = records(written.getvalue())
    assert broken["message"] == f"two\nlines, \u2028 and {MARK} \ud800"
    assert unfit["message"] == "%d and %s"
    assert "test_every_record" in stack["stack"]
    assert (request["status"], request["method"], request["path"]) == (404, "GET", f"/runs/{MARK}")
    assert KEY not in written.getvalue()


@asynccontextmanager
async def lines_of_server(folder: Path, level: str = "info") -> AsyncGenerator[asyncio.StreamReader, None]:
    """The stderr of a whole server that logs as JSON."""
    environ = {"PATH": os.environ["PATH"], "HOME": str(folder), "DRAGOMAN_DATA_DIR": str(folder / "data")}
    environ |= {"DRAGOMAN_LOG_FORMAT": "json", "DRAGOMAN_LOG_LEVEL": level, "DRAGOMAN_MODEL_URL": "scripted:"}
    read_end, write_end = os.pipe()
    lines = asyncio.StreamReader()
    pipe, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(lines), os.fdopen(read_end, "rb", buffering=0)
    )
    words = ("serve", "--port", "0", "--workspace", str(folder / "work"))
    with os.fdopen(write_end, "wb") as stderr:
        async with started(*words, environ=environ, stderr=stderr) as process:
            stderr.close()
            yield lines
            process.terminate()
            assert await process.rest() == b""
            assert await process.wait() == 0
    pipe.close()


@pytest.mark.anyio
async def test_a_server_logs_nothing_but_json(tmp_path: Path) -> None:
    async with asyncio.timeout(LIMIT_S):
        async with lines_of_server(tmp_path) as lines:
            found = [await lines.readline(), await lines.readline()]
            url = re.search(r"http://localhost:(\d+)", json.loads(found[1])["message"])
            assert url
            async with httpx2.AsyncClient(base_url=url[0], trust_env=False, verify=NO_TLS) as client:
                await client.get("/livez", headers={"x-request-id": "edge-1"})
            taken = run_dragoman(
                *("serve", "--port", url[1], "--log-format", "json", "--data-dir", str(tmp_path / "other")),
                environ={"PATH": os.environ["PATH"], "HOME": str(tmp_path)},
            )
        found += (await lines.read()).splitlines()
    written = records(b"\n".join(map(bytes.strip, found)).decode())
    (access,) = (one for one in written if one["logger"] == ACCESS)
    assert (access["path"], access["status"], access["request"]) == ("/livez", 200, "edge-1")
    assert taken.returncode == 1 and taken.stdout == ""
    (problem,) = records(taken.stderr)
    assert problem["level"] == "critical" and problem["message"].startswith("Cannot listen on")


@pytest.mark.anyio
async def test_a_library_logs_no_content_at_any_level(tmp_path: Path) -> None:
    async with asyncio.timeout(LIMIT_S):
        async with lines_of_server(tmp_path, "trace") as lines:
            found = [await lines.readline(), await lines.readline()]
            url = re.search(r"http://localhost:\d+", json.loads(found[1])["message"])
            assert url
            async with httpx2.AsyncClient(base_url=url[0], timeout=LIMIT_S, trust_env=False, verify=NO_TLS) as client:
                await client.post("/chat", json={"message": "Words of Ann"})
        rest = (await lines.read()).decode()
    written = records(rest)
    assert {one["logger"].partition(".")[0] for one in written} <= {"dragoman", "uvicorn", "app", "routes", "tools"}
    assert "Words of Ann" not in rest and "trace" in {one["level"] for one in written}
