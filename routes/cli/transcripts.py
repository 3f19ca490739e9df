"""`dragoman import`: conversations of other programs, into the running server."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from app.config.settings import Loaded
from routes.cli.columns import failed
from routes.cli.remote import Refusal, Remote, server_flags, with_remote
from routes.transcripts.formats import FORMATS, MOST_BYTES

LIMIT_S = 600.0


def import_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("format", choices=FORMATS, help="the program that has written the files")
    parser.add_argument("files", nargs="+", metavar="FILE", help="a file, a folder of them, or - for standard input")
    server_flags(parser)


def run_import(args: argparse.Namespace, loaded: Loaded, environ: Mapping[str, str]) -> int:
    """Exit code 1 if a file cannot be imported; the others are."""
    return with_remote(args, loaded, environ, partial(_import, args.format, args.files))


def _import(kind: str, given: list[str], remote: Remote) -> int:
    code = 0
    for name in (path for one in given for path in _files(kind, one)):
        try:
            done = remote.call("POST", f"/sessions/import?format={kind}", content=_content(name), limit_s=LIMIT_S)
        except (Refusal, OSError) as problem:
            code = failed(f"{name}: {problem}")
            continue
        for one in done["sessions"]:
            print(f"{one['session']}  {one['state']:9}  {one['messages']:6,} messages  {one['title']}")
        for one in done["skipped"]:
            print(f"{name}:{one['line']}: skipped. {one['reason']}", file=sys.stderr)
    return code


def _files(kind: str, given: str) -> list[str]:
    if given == "-" or not Path(given).is_dir():
        return [given]
    return sorted(map(str, Path(given).rglob("*.jsonl" if kind in ("claude", "codex") else "*.json")))


def _content(name: str) -> bytes:
    """Raises OSError, also for what no server takes."""
    with sys.stdin.buffer if name == "-" else Path(name).open("rb") as file:
        data = file.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        raise OSError(f"it has more than {MOST_BYTES >> 20} MB. Split it by conversations.")
    return data
