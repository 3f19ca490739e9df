"""Servers with skills: the folder of these, and the requests that the server got."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from tests.support.mcp.faulty_servers import FIXTURES, PATIENT
from tools.mcp.model import ServerConfig


def skilled(folder: Path, *args: str, **more: Any) -> ServerConfig:
    words = (str(FIXTURES / "skilled.py"), str(folder), *args)
    return ServerConfig("s", command=sys.executable, args=words, **{"timeouts": PATIENT, **more})


def put(folder: Path, path: str, body: str = "Cut above the bud.", **fields: Any) -> Path:
    """Write a skill with a file beside it."""
    place = folder / path
    (place / "notes").mkdir(parents=True, exist_ok=True)
    named = {"name": place.name, "description": f"How to do {place.name}.", **fields}
    lines = "".join(f"{name}: {json.dumps(one)}\n" for name, one in named.items())
    (place / "SKILL.md").write_text(f"---\n{lines}---\n{body}\n")
    (place / "notes" / "more.md").write_text("More.")
    return place


def requests(folder: Path) -> list[str]:
    log = folder.parent / "requests.log"
    return log.read_text().splitlines() if log.exists() else []
