"""Stores of calls that were really decided on, in many worlds, for rules that are tried on the past.

No tool has an effect. Runs have several roles, modes, plans, taint, labels, grants, patterns, helpers, tools of
servers and of clients, calls that are unknown, unfit, denied or expired, and grants that are withdrawn later.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import aclosing, suppress
from functools import partial
from itertools import count, cycle
from typing import Any

from msgspec.structs import replace

from app.core.provider import ModelRequest, Piece
from app.core.rules import ApprovalMode, WhenAbsent
from app.models.scripted import Line, Pause, Raise, Scripted, ended
from app.policy.approvals import NoApproval
from app.policy.stored_grants import Review
from app.runs.run_options import ClientTool, RunOptions
from app.storage.principals import Principal
from app.transcript.run_request import RunRequest
from parsing import Arguments
from tests.support.golden.playing import native
from tests.support.server.serving import Served
from tools.base.rights import Hints, Origin, Risk, Role, Trust
from tools.builtin.delegation import DELEGATE
from tools.builtin.outbound_effects import call_sent
from tools.tool import Tool, answering

CALLS_A_RUN = 8
EXPIRES = 50  # runs, in one of which a question expires
SETTINGS = """
approval_time_limit_s = 1
mcp_tools_share = 1.0
helpers = true
allowed_commands = ["make test"]
labels = [{ label = "customer", paths = ["customer/**"] }, { label = "secret", paths = ["vault/**"] }]
label_rules = [{ label = "secret", outward = "refuse", refuse_tools = ["python"] }]
tools = [{ match = "update_plan", approval = "never" }, { match = "mcp__mail__drafts", approval = "never" }]
rules = [
    { tool = "bash", action = "ask", commands = ["git push"], reason = "It publishes." },
    { tool = "*", action = "deny", paths = ["secrets/**"], reason = "Keys.", name = "keys" },
    { tool = "web_fetch", action = "deny", hosts = ["shop.example.com"], reason = "No." },
]
"""
PEOPLE = (
    Principal("root", Role.ADMIN),
    Principal("ann", Role.USER),
    Principal("bob", Role.USER, ("read_file", "bash", "mcp__*", "list_files"), ("python", "mcp__mail__send")),
    Principal("eve", Role.GUEST),
)
OPTIONS: tuple[dict[str, Any], ...] = (
    {},
    {"approval": ApprovalMode.ASK},
    {"when_absent": WhenAbsent.DENY},
    {"approval": ApprovalMode.AUTO},
    {"approval": ApprovalMode.DENY},
    {"mode": "plan"},
    {"approval": ApprovalMode.ASK, "when_absent": WhenAbsent.DENY},
    {"client_tools": [ClientTool(name="locate")]},
)
TASK = "Look for it."
GO = "Write hi to bob@example.org, read https://example.org/a and go on:"  # its values are the person's own
CALLS: tuple[tuple[str, Arguments], ...] = (
    ("read_file", {"path": "note.txt"}),
    ("write_file", {"path": "note.txt", "content": "x"}),
    ("bash", {"command": "ls -l"}),
    ("bash", {"command": "make test"}),
    ("bash", {"command": "git push origin main", "network": ["github.com"]}),
    ("bash", {"command": "pip install x", "network": ["pypi.org"]}),
    ("bash", {"command": "cat secrets/key"}),
    ("bash", {"command": "curl http://localhost:9"}),
    ("bash", {"command": "mkdir made"}),
    ("python", {"code": "print(1)"}),
    ("write_file", {"path": ".git/hooks/pre-commit", "content": "x"}),
    ("web_fetch", {"url": "https://example.org/a"}),
    ("web_fetch", {"url": "https://example.com/b"}),
    ("web_fetch", {"url": "https://shop.example.com/"}),
    ("mcp__mail__send", {"to": "bob@example.org", "text": "hi"}),
    ("mcp__mail__drafts", {}),
    ("read_file", {"path": "customer/list.csv"}),
    ("bash", {"command": "sleep 1 #!bg"}),
    ("no_such_tool", {"a": 1}),
    ("read_file", {"path": 7}),
    ("edit_file", {"path": "secrets/key", "old": "a", "new": "b"}),
    ("update_plan", {"plan": ["look"]}),
    ("ask_user", {"question": "Which?"}),
    ("submit_plan", {"plan": "I write."}),
    ("read_file", {"path": "vault/one"}),
    ("list_files", {}),
    ("locate", {"place": "here"}),
    ("remember", {"text": "likes tea"}),
    ("delegate", {"task": TASK}),
)
OF_HELPER: tuple[tuple[str, Arguments], ...] = (
    ("read_file", {"path": "note.txt"}),
    ("bash", {"command": "cat secrets/key"}),
    ("bash", {"command": "ls"}),
)
REVIEWS = (
    Review("approve"),
    Review("approve", scope="session"),
    Review("deny"),
    Review("approve", scope="session", hosts=["github.com", "pypi.org"]),
)


async def _nothing(_: Arguments, __: object) -> str:
    return "done"


async def decide_calls(served: Served, script: Calls, number: int) -> int:
    """Have so many calls decided on, and return how many runs they took."""
    services = served.services
    factory = services.factory
    factory.mcp.trust.classification.declare({("mail", ""): Trust(Role.USER, Risk.NETWORK, untrusted=True)}, {})
    factory.built_in = tuple(map(_without_effects, [*factory.built_in, *map(_of_server, ("send", "drafts"))]))
    calls, worlds, sessions = _calls(), _worlds(), dict[str, str]()
    runs = 0
    while runs * CALLS_A_RUN < number:
        principal, fields = next(worlds)
        options = RunOptions(**fields)
        script.answer([next(calls) for _ in range(CALLS_A_RUN)])
        if runs % 3 == 2 and (session := sessions.pop(principal.name, "")):  # else it goes on, with taint and labels
            await factory.runs.withdraw_grants(session, principal)
        agent = await factory.agent(principal, options, sessions.get(principal.name))
        turn = RunRequest(f"{GO} {runs}", session=sessions.get(principal.name), policy=options.policy())
        row = await factory.runs.start(agent, principal, turn)
        await _attended(served, row.id, principal, runs)
        sessions[principal.name] = row.session
        runs += 1
    return runs


class Calls(Scripted):
    """Makes the calls that it is given, then ends its turn, as its helpers do."""

    def __init__(self) -> None:
        super().__init__([])

    def answer(self, calls: Sequence[tuple[str, Arguments]]) -> None:
        self._replies = [_reply(calls)]

    def _next(self, request: ModelRequest) -> list[Piece | Pause | Raise]:
        last = request.messages[-1]
        if last.role != "user":
            return list(ended("done"))
        return list(ended(_reply(OF_HELPER) if last.text.endswith(TASK) else self._replies[0]))


def _reply(calls: Sequence[tuple[str, Arguments]]) -> list[Line]:
    return [piece for at, (name, given) in enumerate(calls) for piece in native(at, name, given)]


async def _attended(served: Served, run: str, principal: Principal, at: int) -> None:
    """Follow a run to its end, and decide what it asks."""
    services, reviews = served.services, cycle(REVIEWS[at % len(REVIEWS) :] + REVIEWS[: at % len(REVIEWS)])
    expires = at % EXPIRES in (0, 4)  # the first question of the run
    async with aclosing(services.runs.watch(run, 0)) as pages:
        async for rows in pages:
            for event in (json.loads(row.data) for row in rows):
                if event["type"] != "approval.required":
                    continue
                if expires:
                    expires = False
                    continue
                review = next(reviews)
                if review.hosts and "network" not in event["arguments"]:
                    review = Review("approve", scope="session")
                with suppress(NoApproval):
                    await services.runs.decide(run, event["call"], principal, review)


def _calls() -> Iterator[tuple[str, Arguments]]:
    for number in count():
        name, arguments = CALLS[(number * 7 + number // len(CALLS)) % len(CALLS)]
        if name == "bash" and number % 3 == 0:
            arguments = {**arguments, "command": f"{arguments['command']} "}
        yield name, dict(arguments)


def _worlds() -> Iterator[tuple[Principal, dict[str, Any]]]:
    for number in count():
        principal = PEOPLE[number % len(PEOPLE)]
        options = OPTIONS[(number // len(PEOPLE)) % len(OPTIONS)]
        if options.get("approval") is ApprovalMode.AUTO and principal.role is not Role.ADMIN:
            options = {}
        yield principal, options


def _without_effects(tool: Tool) -> Tool:
    return tool if tool.name == DELEGATE else replace(tool, run=answering(_nothing), paths={})


def _of_server(name: str) -> Tool:
    return Tool(
        f"mcp__mail__{name}",
        "Mail.",
        {"type": "object", "properties": {}},
        Risk.ADMIN,
        answering(_nothing),
        leaves=partial(call_sent, "mail", name),
        origin=Origin("mail", name, Hints()),
    )
