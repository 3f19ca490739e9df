"""The command line: `dragoman serve`, `chat`, `config` and the others, a row of COMMANDS each.

A subcommand's modules are imported only when it is chosen: those of the server take 0.3 s, `--version` needs none.
"""

from __future__ import annotations

import argparse
import gc
import os
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from app.config.sources import SettingsError

if TYPE_CHECKING:
    from app.config.settings import Loaded

Environ = Mapping[str, str]
AUTOMATION = (
    ("schedule", "add, list, run and switch scheduled messages"),
    ("trigger", "add, list and switch incoming webhooks that start runs"),
)
USAGE_ERROR = 2
INTERRUPTED = 130


class Command(Struct, frozen=True):
    """One subcommand: `arguments` declares its flags, `run` does it and answers with the exit code."""

    name: str
    help: str
    arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace, Environ], int]


def main(argv: Sequence[str] | None = None, environ: Environ = os.environ) -> int:
    """Run one subcommand and return its exit code; 2 when flags or settings are wrong (SystemExit for flags)."""
    words = sys.argv[1:] if argv is None else list(argv)
    words, behind = _apart(words)
    with no_garbage_collection():
        args = _parser(words).parse_args(words, argparse.Namespace(behind=behind))
    try:
        command: Command = args.command
        code = command.run(args, environ)
        sys.stdout.flush()  # here, where a reader that has left can be answered
    except SettingsError as error:
        for problem in error.problems:
            print(f"dragoman: {problem}", file=sys.stderr)
        return USAGE_ERROR
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # The reader (`head`, a pager) has left; Python would complain once more when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    return code


def _parser(words: Sequence[str]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("dragoman", description=_DESCRIPTION, allow_abbrev=False)
    parser.add_argument("--version", action=_Version)
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for command in COMMANDS:
        child = commands.add_parser(command.name, help=command.help, description=command.help, allow_abbrev=False)
        child.set_defaults(command=command)
        if command.name in words:  # declaring flags imports what they are made from: only for the one that may run
            command.arguments(child)
    return parser


def _apart(words: list[str]) -> tuple[list[str], list[str]]:
    """Our words, and behind `--` those of the command that `mcp add` adds; argparse would mix them up."""
    if words[:1] != ["mcp"] or "--" not in words:
        return words, []
    at = words.index("--")
    return words[:at], words[at + 1 :]


class _Version(argparse.Action):
    """`--version`, read from the installed package only when it is needed."""

    def __init__(self, option_strings: Sequence[str], dest: str) -> None:
        super().__init__(option_strings, dest, nargs=0, help="show the version and exit")

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from importlib.metadata import version

        print(f"dragoman {version('dragoman')}")
        parser.exit()


def _settings_flags(parser: argparse.ArgumentParser, only: Collection[str] | None = None) -> None:
    """A flag per setting. Values stay text: `load_settings` checks them like those of every other source."""
    from app.config.display import as_written
    from app.config.operator_settings import FILE_ONLY
    from app.config.settings import Settings

    if only is None:  # a usage with all of them would be 60 lines
        usage = parser.format_usage().removeprefix("usage: ").rstrip()
        parser.usage = f"{usage} [--SETTING VALUE ...]".replace("%", "%%")
    group = parser.add_argument_group("settings", "also DRAGOMAN_NAME in the environment and name in dragoman.toml")
    group.add_argument("--config", metavar="FILE", help="the TOML file to read (default: ./dragoman.toml if it exists)")
    for name, field in Settings.model_fields.items():
        if name in FILE_ONLY or (only is not None and name not in only):
            continue
        flag, help_text = f"--{name.replace('_', '-')}", field.description or ""
        if field.annotation is bool:
            group.add_argument(flag, dest=name, action="store_const", const="true", help=help_text)
            if field.default:
                no = f"--no-{name.replace('_', '-')}"
                group.add_argument(no, dest=name, action="store_const", const="false", help=f"not {flag}, the default")
            continue
        shown = "" if field.default in (None, ()) or field.is_required() else f" (default: {as_written(field.default)})"
        group.add_argument(flag, dest=name, metavar=name.rsplit("_", 1)[-1].upper(), help=help_text + shown)


def _loaded(args: argparse.Namespace, environ: Environ) -> Loaded:
    from app.config.settings import load_settings

    return load_settings(vars(args), environ)


def _serve(args: argparse.Namespace, environ: Environ) -> int:
    with no_garbage_collection():
        loaded = _loaded(args, environ)  # a wrong setting is reported before the server's modules are loaded
        from routes.server import serve
    return serve(loaded)


@contextmanager
def no_garbage_collection() -> Iterator[None]:
    """For imports: modules make little garbage, and looking for it takes a sixth of the time that they need."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()  # modules stay: the first collection need not look through them
        gc.enable()


def _chat_flags(parser: argparse.ArgumentParser) -> None:
    import_module("routes.cli.chat_flags").chat_flags(parser)
    _settings_flags(parser)


def _chat(args: argparse.Namespace, environ: Environ) -> int:
    return int(import_module("routes.cli.chat_flags").run_chat(args, _loaded(args, environ), environ))


def _config_flags(parser: argparse.ArgumentParser) -> None:
    help_text = "also show the options of a run with this profile and where they come from"
    parser.add_argument("--profile", dest="its_profile", metavar="NAME", help=help_text)
    help_text = "the same for a run in this session"
    parser.add_argument("--session", dest="its_session", metavar="ID", help=help_text)
    _settings_flags(parser)


def _config(args: argparse.Namespace, environ: Environ) -> int:
    loaded = _loaded(args, environ)
    from routes.cli.stored_settings import print_config

    loaded = print_config(loaded)
    if not (args.its_profile or args.its_session):
        return 0
    from routes.cli.profiles import show_options

    print()
    return show_options(loaded, args.its_profile, args.its_session)


def _profile_flags(parser: argparse.ArgumentParser) -> None:
    from routes.cli.profiles import profile_flags

    for child in profile_flags(parser):
        _settings_flags(child, only=("data_dir", "workspace"))  # some of the others are words of `set`


def _profile(args: argparse.Namespace, environ: Environ) -> int:
    loaded = _loaded(args, environ)
    from routes.cli.profiles import run_profile

    return run_profile(args, loaded)


def _token_flags(parser: argparse.ArgumentParser) -> None:
    from routes.cli.tokens import token_flags

    for child in token_flags(parser):
        _settings_flags(child, only=("data_dir", "workspace"))  # some of the others are words of `create`, too


def _token(args: argparse.Namespace, environ: Environ) -> int:
    loaded = _loaded(args, environ)
    from routes.cli.tokens import run_token

    return run_token(args, loaded)


def _mcp_flags(parser: argparse.ArgumentParser) -> None:
    from routes.cli.mcp import mcp_flags

    for child in mcp_flags(parser):
        _settings_flags(child, only=("mcp_config", "data_dir", "workspace", "host", "port"))


def _mcp(args: argparse.Namespace, environ: Environ) -> int:
    loaded = _loaded(args, environ)
    from routes.cli.mcp import run_mcp

    return run_mcp(args, loaded, environ, args.behind)


def _endpoint_flags(parser: argparse.ArgumentParser) -> None:
    from routes.cli.endpoints import endpoint_flags

    for child in endpoint_flags(parser):
        _settings_flags(child, only=("data_dir", "workspace", "host", "port"))  # some of the others are words of `add`


def _endpoint(args: argparse.Namespace, environ: Environ) -> int:
    loaded = _loaded(args, environ)
    from routes.cli.endpoints import run_endpoint

    return run_endpoint(args, loaded, environ)


def _model_flags(parser: argparse.ArgumentParser) -> None:
    from routes.cli.models import model_flags

    for child in model_flags(parser):
        _settings_flags(child, only=("data_dir", "workspace", "host", "port", "model_memory_mb"))


def _model(args: argparse.Namespace, environ: Environ) -> int:
    loaded = _loaded(args, environ)
    from routes.cli.models import run_model

    return run_model(args, loaded, environ)


def _single_flags(name: str, module: str, only: Sequence[str], parser: argparse.ArgumentParser) -> None:
    """The flags of a command without actions."""
    getattr(import_module(module), f"{name}_flags")(parser)
    _settings_flags(parser, only=only)


def _remote_flags(name: str, module: str, parser: argparse.ArgumentParser) -> None:
    for child in getattr(import_module(module), f"{name}_flags")(parser):
        _settings_flags(child, only=("host", "port", "data_dir"))


def _remote(name: str, module: str, args: argparse.Namespace, environ: Environ) -> int:
    loaded, run = _loaded(args, environ), getattr(import_module(module), f"run_{name}")
    return int(run(args, loaded, environ))


def _automation_flags(kind: str, parser: argparse.ArgumentParser) -> None:
    from routes.cli.schedules import automation_flags

    for child in automation_flags(kind, parser):
        _settings_flags(child, only=("host", "port", "data_dir"))


def _automation(kind: str, args: argparse.Namespace, environ: Environ) -> int:
    from routes.cli.schedules import run_automation

    return run_automation(kind, args, _loaded(args, environ), environ)


def _db_flags(parser: argparse.ArgumentParser) -> None:
    from routes.cli.database import db_flags

    for child in db_flags(parser):
        _settings_flags(child)


def _db(args: argparse.Namespace, environ: Environ) -> int:
    loaded = _loaded(args, environ)
    from routes.cli.database import run_db

    return run_db(args, loaded)


def _doctor_flags(parser: argparse.ArgumentParser) -> None:
    import_module("routes.cli.doctor.command").doctor_flags(parser)
    _settings_flags(parser)


def _doctor(args: argparse.Namespace, environ: Environ) -> int:
    return int(import_module("routes.cli.doctor.command").run_doctor(args, environ))


def _parse_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--tools", type=Path, metavar="FILE", help="JSON: tool names, each with the schema it takes")
    parser.add_argument("--no-fences", action="store_true", help="fences tagged with a tool's name are not calls")


def _parse(args: argparse.Namespace, _environ: Environ) -> int:
    from routes.cli.parse_text import parse_stdin

    return parse_stdin(args.tools, not args.no_fences)


def _dialects(_args: argparse.Namespace, _environ: Environ) -> int:
    from routes.cli.parse_text import print_dialects

    return print_dialects()


def _single(name: str, module: str, help_text: str, only: Sequence[str]) -> Command:
    return Command(name, help_text, partial(_single_flags, name, module, only), partial(_remote, name, module))


def _no_flags(_parser: argparse.ArgumentParser) -> None:
    """The flags of a subcommand that takes none."""


_DESCRIPTION = "A streaming agent server: any model's tool calls, recognised, checked, run and shown live."

REMOTE = (
    ("memory", "routes.cli.memory", "list, search, edit and delete what is remembered about you"),
    ("rules", "routes.cli.rules", "list the operator's rules on arguments, and test a call against them"),
    ("webhook", "routes.cli.webhooks", "add, list, test and remove webhooks for notifications"),
)
FOUND, LAID = ("host", "port", "data_dir"), ("host", "port", "data_dir", "workspace")
SHARED = ("database_url",)
COMMANDS = (
    Command("serve", "run the server", _settings_flags, _serve),
    Command("chat", "chat with a server in the terminal; starts a server if none answers", _chat_flags, _chat),
    Command("config", "show the effective settings and where each value comes from", _config_flags, _config),
    Command("profile", "list, show, set and remove profiles: named options of runs", _profile_flags, _profile),
    Command("token", "create, list and revoke the tokens that clients sign in with", _token_flags, _token),
    Command("mcp", "add, list, enable, disable and approve MCP servers", _mcp_flags, _mcp),
    _single("project", "routes.cli.project", "show, accept or decline the workspace's instructions (AGENTS.md)", FOUND),
    Command("endpoint", "add, list, test and remove model servers", _endpoint_flags, _endpoint),
    Command("model", "add, list, serve and stop model files (GGUF) on this machine", _model_flags, _model),
    *(Command(kind, text, partial(_automation_flags, kind), partial(_automation, kind)) for kind, text in AUTOMATION),
    _single("connect", "routes.cli.connect", "connect another program to the server: Codex, Claude Code, SDKs", LAID),
    *(Command(name, text, partial(_remote_flags, name, of), partial(_remote, name, of)) for name, of, text in REMOTE),
    Command(
        "db", "show the size of the database, shrink it, back it up or restore it, or export a session", _db_flags, _db
    ),
    _single("node", "routes.cli.nodes", "list the nodes that share a database, and forget one", SHARED),
    Command("doctor", "check this installation, and show how to fix what is wrong", _doctor_flags, _doctor),
    Command("parse", "parse a model's output from standard input and show the result", _parse_flags, _parse),
    Command("dialects", "list the supported dialects of tool calls", _no_flags, _dialects),
)

if __name__ == "__main__":
    sys.exit(main())
