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
from importlib import import_module
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING

from msgspec import Struct

from app.config.sources import SettingsError

if TYPE_CHECKING:
    from app.config.settings import Loaded

Environ = Mapping[str, str]
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
        args = _parser(words).parse_args(words, argparse.Namespace(behind=behind, words=words))
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


def _serve_flags(parser: argparse.ArgumentParser) -> None:
    _settings_flags(parser)
    parser.add_argument("--as-worker", nargs=2, type=int, metavar=("NUMBER", "PORT"), help=argparse.SUPPRESS)


def _serve(args: argparse.Namespace, environ: Environ) -> int:
    with no_garbage_collection():
        loaded = _loaded(args, environ)  # a wrong setting is reported before the server's modules are loaded
    if loaded.settings.workers > 1 and not args.as_worker:
        from routes.workers.parent import serve_workers

        return serve_workers(loaded.settings, [sys.executable, "-P", "-m", "routes.cli.main", *args.words], environ)
    with no_garbage_collection():
        from tools.base.tasks import alone
        from tools.sandbox.sandbox import find_sandbox

        if not loaded.settings.unsafe_no_sandbox:  # its trials are remembered: 50 ms, beside the imports
            Thread(target=alone, args=(find_sandbox,), name="sandbox").start()
        from routes.server import serve
        from routes.workers.channel import Place

        place = None
        if args.as_worker:
            from routes.catalogue import late_routes

            number, port = args.as_worker
            place = Place(number, port)
            late_routes()  # it goes on while the next version is installed, and must not import that
    return serve(loaded, place)


@contextmanager
def no_garbage_collection() -> Iterator[None]:
    """For imports: modules make little garbage, and looking for it takes a sixth of the time that they need."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()  # modules stay: the first collection need not look through them
        gc.enable()


def _command(name: str, help_text: str, module: str, settings: Collection[str] | None = None) -> Command:
    """A row for a module that has `NAME_flags` and `run_NAME`, with the first word of the name.

    Of the `settings`, None being all, flags are made, too. `NAME_flags` returns the parsers of the actions, if the
    command has some.
    """

    word = name.partition("-")[0]

    def arguments(parser: argparse.ArgumentParser) -> None:
        for child in getattr(import_module(module), f"{word}_flags")(parser) or [parser]:
            _settings_flags(child, settings)

    def run(args: argparse.Namespace, environ: Environ) -> int:
        loaded = _loaded(args, environ)
        return int(getattr(import_module(module), f"run_{word}")(args, loaded, environ))

    return Command(name, help_text, arguments, run)


def _doctor_flags(parser: argparse.ArgumentParser) -> None:
    for child in (parser, import_module("routes.cli.doctor.command").doctor_flags(parser)):
        _settings_flags(child)


def _doctor(args: argparse.Namespace, environ: Environ) -> int:
    return int(import_module("routes.cli.doctor.command").run_doctor(args, environ))


def _parse_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--tools", type=Path, metavar="FILE", help="JSON: tool names, each with the schema it takes")
    parser.add_argument("--no-fences", action="store_true", help="fences tagged with a tool's name are not calls")


def _parse(args: argparse.Namespace, _environ: Environ) -> int:
    from routes.cli.dialects.parse_text import parse_stdin

    return parse_stdin(args.tools, not args.no_fences)


def _dialects_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--template",
        type=Path,
        metavar="FILE",
        help="show how a model with this template calls tools: a jinja file, a tokenizer_config.json or a GGUF file",
    )


def _dialects(args: argparse.Namespace, _environ: Environ) -> int:
    if args.template:
        return int(import_module("routes.cli.dialects.template_report").print_template(args.template))
    from routes.cli.dialects.parse_text import print_dialects

    return print_dialects()


_DESCRIPTION = "A streaming agent server: any model's tool calls, recognised, checked, run and shown live."

# Some of the other settings are words of the actions.
STORE, SERVER = ("data_dir", "workspace"), ("host", "port", "data_dir")
BOTH = (*SERVER, "workspace")
COMMANDS = (
    Command("serve", "run the server", _serve_flags, _serve),
    _command("chat", "chat with a server in the terminal; starts a server if none answers", "routes.cli.chat_flags"),
    _command(
        "acp", "be the agent of an editor (Agent Client Protocol) on standard input and output", "routes.acp.command"
    ),
    _command("config", "show the effective settings and where each value comes from", "routes.cli.config"),
    _command("profile", "list, show, set and remove profiles: named options of runs", "routes.cli.profiles", STORE),
    _command("token", "create, list and revoke the tokens that clients sign in with", "routes.cli.tokens", STORE),
    _command(
        "mcp",
        "add, list, enable, disable and approve MCP servers, or be one",
        "routes.cli.mcp",
        settings=("mcp_config", *BOTH),
    ),
    _command(
        "project", "show, accept or decline the workspace's instructions (AGENTS.md)", "routes.cli.project", SERVER
    ),
    _command(
        "secret",
        "add, list and remove secrets, which commands use and no model sees",
        "routes.cli.secrets",
        settings=(*STORE, "secrets_key_file"),
    ),
    _command("endpoint", "add, list, test and remove model servers", "routes.cli.endpoints", BOTH),
    _command(
        "model",
        "add, list, serve and stop model files (GGUF) on this machine",
        "routes.cli.models",
        settings=(*BOTH, "model_memory_mb", "model_hub", "model_hub_token", "model_download_mb"),
    ),
    _command("schedule", "add, list, run and switch scheduled messages", "routes.cli.schedules", SERVER),
    _command("trigger", "add, list and switch incoming webhooks that start runs", "routes.cli.schedules", SERVER),
    _command("connect", "connect another program to the server: Codex, Claude Code, SDKs", "routes.cli.connect", BOTH),
    _command("memory", "list, search, edit and delete what is remembered about you", "routes.cli.memory", SERVER),
    _command(
        "rules",
        "list the operator's rules on arguments, and try them on calls of now and of the past",
        "routes.cli.rules",
        BOTH,
    ),
    _command("permission", "list and withdraw what you have allowed for good", "routes.cli.permissions", SERVER),
    _command("webhook", "add, list, test and remove webhooks for notifications", "routes.cli.webhooks", SERVER),
    _command(
        "db",
        "show the size of the database, shrink it, back it up or restore it, or export a session",
        "routes.cli.database",
    ),
    _command("import", "import conversations of Claude Code, Codex, opencode", "routes.cli.database", SERVER),
    _command("replay", "replay stored runs, or tests made of them, by this version", "routes.cli.replay", BOTH),
    _command("compare", "try stored runs with other models, and judge them by checks", "routes.cli.trials", BOTH),
    _command("export-test", "write a run as a test, for `dragoman replay`", "routes.cli.replay", STORE),
    _command("node", "list the nodes that share a database, and forget one", "routes.cli.nodes", ("database_url",)),
    Command("doctor", "check this installation, and show how to fix what is wrong", _doctor_flags, _doctor),
    Command("parse", "parse a model's output from standard input and show the result", _parse_flags, _parse),
    Command("dialects", "list the dialects of tool calls, or show that of a template", _dialects_flags, _dialects),
)

if __name__ == "__main__":
    sys.exit(main())
