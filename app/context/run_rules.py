"""Rules and facts of a run in its prompt: short sections, each with its condition.

A small model needs the room, and follows the tools' descriptions better alone: below LEAST_WINDOW there are none. The
text is the same in all rounds of a run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from msgspec import Struct

from app.config.secret_spec import COMMAND_TOOLS
from tools.base.rights import Risk
from tools.sandbox.sandbox import Bubblewrap, Landlock, NoSandbox, Sandbox, Unboxed
from tools.tool import Tool

LEAST_WINDOW = 16_384  # tokens
MOST = 2_000  # characters of all sections
Channel = Literal["page", "terminal", "messenger"]
SAFETY = (
    "Before you delete, overwrite or send what cannot be brought back, be sure that the person asked for exactly that; "
    "else ask first."
)
APPROVALS = (
    "Some calls wait until a person approves them, and the result says what was decided. Do not try a refused call "
    "again in another way: go on without it, or say what is missing."
)
UNATTENDED = "No person can approve calls in this run: those that would need it are refused. Say what is missing."
BRIEF = "Answer briefly, in the person's language: what you did and found, not what you are about to do."
SHOWN = {
    "page": "Your answer is shown as Markdown: tables, code, formulas and Mermaid diagrams work.",
    "terminal": "Your answer is shown in a terminal: short paragraphs and lists, no wide tables, pictures or HTML.",
    "messenger": "Your answer is sent by a messenger as plain text: short paragraphs, no tables, headings or HTML.",
}


class RunFacts(Struct, frozen=True, kw_only=True):
    """`sandbox` describes where commands run. `styled`: the request, a profile or the persona sets a style of its own.

    `attended`: a person may approve calls. `channel` is where the person reads the answers, if that is known.
    """

    sandbox: str = ""
    attended: bool = True
    styled: bool = False
    channel: Channel | None = None


def sections(facts: RunFacts, tools: Sequence[Tool], *, native: bool) -> Mapping[str, str]:
    """Return the sections by their names, empty where they do not apply.

    Small models that are taught calls use tools less with the sandbox and brevity: these are for native calls alone.
    """
    acts = any(tool.risk is not Risk.READ for tool in tools)
    commands = any(tool.name in COMMAND_TOOLS for tool in tools)
    return {
        "safety": SAFETY if acts else "",
        "approvals": (APPROVALS if facts.attended else UNATTENDED) if acts else "",
        "sandbox": facts.sandbox if native and commands else "",
        "brevity": BRIEF if native and tools and not facts.styled else "",
        "channel": SHOWN[facts.channel] if facts.channel else "",
    }


def run_rules(facts: RunFacts, tools: Sequence[Tool], window: int, *, native: bool) -> str:
    """Return the sections that apply, a paragraph, for a model with this window, with native calls or taught ones."""
    if window < LEAST_WINDOW:
        return ""
    return " ".join(filter(None, sections(facts, tools, native=native).values()))


def sandbox_facts(sandbox: Sandbox | NoSandbox, time_limit_s: float) -> str:
    """Return what a model needs to know of the place in which its commands run."""
    match sandbox:
        case NoSandbox():
            return ""
        case Unboxed():
            return f"Commands run without a sandbox, with all rights of the server's account, for {time_limit_s:g} s."
        case Bubblewrap(networked=True):
            network = "They reach public hosts, nothing of this machine or its network."
        case Bubblewrap():
            network = "They have no network but the hosts that a call names (`network`)."
        case Landlock():
            network = "They have no network."
    limits = sandbox.limits
    memory = f", {limits.memory_bytes >> 20} MB of memory" if limits.bounds("memory") else ""
    python = sandbox.python.name
    return (
        "Commands run in a sandbox: they can write to this folder and /tmp only, and nothing can be installed in the "
        f"system. {network} They have {time_limit_s:g} s{memory}, and {python}."
    )
