"""`dragoman connect PROGRAM`: show, or write, what points a program at this server."""

from __future__ import annotations

import argparse
import difflib
import json
import re
import shutil
import sys
import tomllib
from collections.abc import Callable, Mapping
from itertools import count
from pathlib import Path
from typing import Any

from app.config.settings import Loaded
from routes.cli.columns import failed
from routes.cli.programs import PROGRAMS, Block, Program
from routes.terminal.chat import checked_url, default_url
from routes.terminal.event_client import ChatFailed
from tools.base.texts import replace_file

AGENT = "dragoman/agent"


class CannotMerge(Exception):
    """Our lines cannot be put into the file by a program. The message says why."""


def connect_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("program", choices=[program.name for program in PROGRAMS], metavar="PROGRAM", help=NAMES)
    help_text = "the server's address; also DRAGOMAN_URL (default: host and port of the settings)"
    parser.add_argument("--url", help=help_text)
    help_text = f"a name of GET /v1/models: that of a model is relayed to it (default: {AGENT}, the agent)"
    parser.add_argument(
        "--model", dest="served_model", type=_model_name, metavar="MODEL", default=AGENT, help=help_text
    )
    help_text = "write the files that the program reads: shows what changes, and keeps the file that was there"
    parser.add_argument("--write", action="store_true", help=help_text)


def _model_name(text: str) -> str:
    """It goes into files of several languages as it is."""
    if not re.fullmatch(r"[\w./:@+-]+", text):
        raise argparse.ArgumentTypeError(f"{text!a} is not the name of a model; GET /v1/models lists them")
    return text


def _plain_url(url: str) -> str:
    """It goes where the name of a model does. Raises ChatFailed."""
    if not re.fullmatch(r"[\w./:@\[\]%~+-]+", url, re.ASCII):
        raise ChatFailed(
            f"{url!a} has characters that files and shells read as more than a URL. Write it without them."
        )
    return url


NAMES = ", ".join(program.name for program in PROGRAMS)


def run_connect(args: argparse.Namespace, loaded: Loaded, environ: Mapping[str, str]) -> int:
    url = args.url or environ.get("DRAGOMAN_URL") or default_url(loaded.settings)
    try:
        url = _plain_url(checked_url(url)).rstrip("/").removesuffix("/v1")
    except ChatFailed as error:
        print(f"dragoman: {error}", file=sys.stderr)
        return 2
    program = next(program for program in PROGRAMS if program.name == args.program)
    home = Path(environ.get("HOME") or Path.home())
    if args.write:
        return write(program, url, args.served_model, home)
    print(text_of(program, url, args.served_model), end="")
    return 0


def text_of(program: Program, url: str, model: str) -> str:
    return "\n".join(f"# {block.lead}\n\n{block.text}" for block in program.shown(url, model))


def write(program: Program, url: str, model: str, home: Path) -> int:
    """Bring its files up to date, and show what else is to do. 1 if a file cannot be changed."""
    for block in program.shown(url, model):
        if not block.path:
            print(f"# {block.lead}\n\n{block.text}")
            continue
        path = home / block.path.removeprefix("~/")
        try:
            print(write_file(path, block))
        except (CannotMerge, OSError) as error:
            return failed(f"{path} was not changed: {error}")
    if not program.path:
        print(f"{program.title} does not read a file of this kind: nothing was written.", file=sys.stderr)
    return 0


def write_file(path: Path, block: Block) -> str:
    """Merge a block into its file. Return the difference."""
    try:
        before = path.read_text("utf-8") if path.exists() else ""
    except UnicodeDecodeError:
        raise CannotMerge("it is not UTF-8; add these lines yourself") from None
    after = MERGES[block.language](before, block.text)
    if before == after:
        return f"{path} is up to date.\n"
    path.parent.mkdir(parents=True, exist_ok=True)
    kept = ""
    if before:
        backup = next(one for n in count(1) if not (one := path.with_name(f"{path.name}.before-{n}")).exists())
        shutil.copy2(path, backup)
        kept = f"The file that was there is kept as {backup}.\n"
    replace_file(path, after)
    lines = difflib.unified_diff(before.splitlines(True), after.splitlines(True), str(path), str(path))
    return "".join(lines) + kept


def merged_json(before: str, ours: str) -> str:
    try:
        there = json.loads(before or "{}")
    except ValueError as error:
        raise CannotMerge(f"it is not JSON ({error}); add these lines yourself") from None
    if not isinstance(there, dict):
        raise CannotMerge("it is not a JSON object; add these lines yourself")
    both = merged(there, json.loads(ours))
    return before if both == there else json.dumps(both, indent=2, ensure_ascii=False) + "\n"


def merged(there: Mapping[str, Any], ours: Mapping[str, Any]) -> dict[str, Any]:
    both = dict(there)
    for name, value in ours.items():
        old = both.get(name)
        both[name] = merged(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return both


def merged_toml(before: str, ours: str) -> str:
    """Our top-level lines stand first, our tables last; comments and all else stay. Checked by reading both."""
    try:
        there, new = tomllib.loads(before), tomllib.loads(ours)
    except tomllib.TOMLDecodeError as error:
        raise CannotMerge(f"it is not TOML ({error}); add these lines yourself") from None
    if merged(there, new) == there:
        return before
    head, _, tables = ours.partition("\n[")
    names = {line.partition(" = ")[0] for line in head.splitlines()}
    mine = {line for line in f"[{tables}".splitlines() if line.startswith("[")}
    rest, in_mine, in_table = list[str](), False, False
    for line in before.splitlines():
        if line.lstrip().startswith("["):
            in_mine, in_table = line.strip() in mine, True
        if not in_mine and (in_table or line.partition("=")[0].strip() not in names):
            rest.append(line)
    kept = "\n".join(rest).strip("\n")
    after = "\n".join(part for part in (head.rstrip("\n") + "\n", kept and f"{kept}\n", f"[{tables}") if part)
    try:
        right = tomllib.loads(after) == merged(there, new)
    except tomllib.TOMLDecodeError:
        right = False
    if not right:
        raise CannotMerge("it has these keys in a form that is not understood; change these lines yourself")
    return after


def merged_yaml(before: str, ours: str) -> str:
    if before.strip() and ours not in before:
        raise CannotMerge("it exists, and YAML is not merged; add these lines yourself")
    return before or ours


MERGES: Mapping[str, Callable[[str, str], str]] = {"json": merged_json, "toml": merged_toml, "yaml": merged_yaml}
