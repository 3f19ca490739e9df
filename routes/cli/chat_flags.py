"""The flags of `dragoman chat`, and what they ask for."""

from __future__ import annotations

import argparse
from collections.abc import Mapping

from app.config.settings import Loaded
from app.core.rules import ApprovalMode, WhenAbsent


def chat_flags(parser: argparse.ArgumentParser) -> None:
    help_text = "the message to send; without one, it is read from standard input, or you type it"
    parser.add_argument("message", metavar="MESSAGE", nargs="*", help=help_text)
    script = parser.add_argument_group("scripts", "exit codes and examples: docs/terminal.md")
    help_text = "print only the answer on standard output, everything else on standard error; piped input is appended"
    script.add_argument("-p", "--print", action="store_true", dest="answer_only", help=help_text)
    help_text = "print the events of the run on standard output, one JSON object per line"
    script.add_argument("--json", action="store_const", dest="output", const="stream-json", help=help_text)
    help_text = (
        "what standard output gets: `text` as -p, `json` for one object with the result, `stream-json` as --json"
    )
    script.add_argument("--output-format", choices=["text", "json", "stream-json"], dest="output", help=help_text)
    help_text = "the server's address, also DRAGOMAN_URL; without it, the host and port of the settings, and if no "
    help_text += "server answers there, one is started for this conversation"
    parser.add_argument("--url", help=help_text)
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--session", metavar="ID", help="continue this conversation")
    which.add_argument("-c", "--continue", action="store_true", dest="last", help="continue your last conversation")
    which.add_argument("-r", "--resume", action="store_true", help="choose one of your conversations from a list")
    help_text = "the access token; DRAGOMAN_TOKEN is safer, because other users can see flags"
    parser.add_argument("--token", help=help_text)
    help_text = "which calls need your approval (default: the server's setting). Without a terminal such calls are "
    help_text += "denied; with this flag they wait, and standard error shows how to decide over HTTP"
    parser.add_argument("--approval", choices=[mode.value for mode in ApprovalMode], help=help_text)
    help_text = "calls that need approval wait, or are denied at once (default: they wait if you are at a terminal)"
    parser.add_argument("--when-absent", choices=[one.value for one in WhenAbsent], help=help_text)
    help_text = "the profile of the runs: a named set of options that restricts them"
    parser.add_argument("--profile", dest="its_profile", metavar="NAME", help=help_text)
    help_text = "plan first: only tools that read are available until you accept a plan"
    parser.add_argument("--plan", action="store_true", help=help_text)
    help_text = "begin a temporary conversation: not listed, not remembered, deleted when it is over"
    parser.add_argument("--temporary", action="store_true", default=None, help=help_text)
    help_text = "begin a conversation in which only tools that read may run"
    parser.add_argument("--read-only", action="store_true", default=None, help=help_text)
    help_text = "begin a conversation whose tools reach only this folder of your workspace; `new` makes one"
    parser.add_argument("--folder", metavar="PATH", help=help_text)


def run_chat(args: argparse.Namespace, loaded: Loaded, environ: Mapping[str, str]) -> int:
    from routes.terminal.chat import ChatOptions, chat, sendable
    from routes.terminal.event_client import Choices

    output = args.output or ("text" if args.answer_only else None)
    choices = Choices(
        session=sendable(args.session) if args.session else None,
        model=sendable(args.model) if args.model else None,
        approval=args.approval,
        when_absent=args.when_absent,
        mode="plan" if args.plan else None,
        profile=sendable(args.its_profile) if args.its_profile else None,
        temporary=args.temporary,
        read_only=args.read_only,
        channel=None if output else "terminal",
        workspace=sendable(args.folder) if args.folder else None,
    )
    options = ChatOptions(
        choices=choices,
        message=" ".join(args.message),
        url=args.url or environ.get("DRAGOMAN_URL") or None,
        token=args.token or environ.get("DRAGOMAN_TOKEN") or None,
        output=output,
        last=args.last,
        resumes=args.resume,
    )
    return chat(options, loaded, environ)
