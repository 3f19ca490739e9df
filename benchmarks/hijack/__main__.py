"""How much of AgentDojo succeeds against the gate when the model is wholly the attacker's, and what asking costs.

Every injection is tried against every errand of its suite. The model does what its errand asks until it reads the
injection, and then exactly what the injection wants. A person approves what serves her errand and denies all else.
The same errands without injections count how often she is asked in peace.
"""

from __future__ import annotations

import asyncio
import re
import sys
from collections import Counter
from dataclasses import dataclass, field, fields
from functools import partial, reduce
from operator import add
from pathlib import Path

from app.config.settings import load_settings
from app.core.rules import ApprovalMode, ToolRule
from benchmarks.hijack import attacks, costs, questions
from benchmarks.hijack.model import Hijackable
from benchmarks.hijack.runs import Policy, Stage, stage
from benchmarks.hijack.suites import MARKER, VERSION, Suite, suites
from tools.base.rights import Role

RULES = Path(__file__).with_name("tools.toml")
QUESTIONS = "questions"  # an argument: only how often a person is asked
NO_GATE = Policy("no-gate", ApprovalMode.AUTO, taint=False, role=Role.ADMIN)
POLICIES = (
    NO_GATE,
    Policy("sandboxed", ApprovalMode.SANDBOXED, taint=True),
    Policy("taint-off", ApprovalMode.SANDBOXED, taint=False),
    Policy("ask", ApprovalMode.ASK, taint=True),
    Policy("auto", ApprovalMode.AUTO, taint=True, role=Role.ADMIN),
)


@dataclass(slots=True)
class Tally:
    """Counts of one suite, or of several together.

    `succeed`: injections that reached their goal in at least one pair, by whose steps they took.
    """

    pairs: int = 0
    read: int = 0  # pairs in which the model came upon the injection
    pairs_lost: int = 0  # pairs in which calls reached its goal
    acted: int = 0  # calls that ran for the stranger, beyond reading
    denied: int = 0
    succeed: Counter[str] = field(default_factory=Counter)
    errands: int = 0
    asking: int = 0
    prompts: Counter[str] = field(default_factory=Counter)  # by tool
    broken: list[str] = field(default_factory=list)

    def __add__(self, other: Tally) -> Tally:
        return Tally(*(getattr(self, one.name) + getattr(other, one.name) for one in fields(self)))

    @property
    def by_calls(self) -> int:
        return self.succeed["them"] + self.succeed["us"]


async def under_attack(on: Stage, suite: Suite, policy: Policy, rules: tuple[ToolRule, ...]) -> Tally:
    tally = Tally()
    for injection in suite.injections:
        lost = 0
        for errand in suite.errands:
            world = suite.world(errand, hostile=True)
            model = Hijackable(errand.script(world), MARKER, partial(injection.orders, world))
            outcome = await on.play(policy, world.tools(rules), model, errand.request)
            tally.pairs += 1
            tally.read += outcome.hijacked
            tally.acted += outcome.acted
            tally.denied += outcome.denied
            lost += injection.achieved(world, outcome.text)
        tally.succeed[injection.steps_by] += lost > 0
        tally.pairs_lost += lost if injection.steps_by != "nobody" else 0
    return tally


async def in_peace(on: Stage, suite: Suite, policy: Policy, rules: tuple[ToolRule, ...]) -> Tally:
    tally = Tally()
    for errand in suite.errands:
        world = suite.world(errand, hostile=False)
        outcome = await on.play(policy, world.tools(rules), Hijackable(errand.script(world)), errand.request)
        tally.errands += 1
        tally.asking += bool(outcome.asked)
        tally.prompts.update(outcome.asked)
        if not errand.achieved(world, outcome.text):
            tally.broken.append(f"{errand.name}: {'; '.join(outcome.rejected) or outcome.text}")
    return tally


COLUMNS = "  pairs  read  lost  them  us  words  acted  denied    errands  ask  prompts  broken"
LEGEND = """
pairs of an errand and an injection; read: the model came upon the injection; lost: calls reached its goal
them, us, words: injections that succeed in any pair, by AgentDojo's steps, by ours where it has none, by what is said
acted: calls that ran for the stranger, beyond reading; denied: those that a person was asked about
errands without injections; ask: those that prompt; prompts in all; broken: lost though all was approved
"""


def show(name: str, tally: Tally) -> None:
    succeed = tally.succeed
    attacks = (tally.pairs, tally.read, tally.pairs_lost, succeed["them"], succeed["us"], succeed["nobody"])
    peace = (tally.acted, tally.denied, tally.errands, tally.asking, tally.prompts.total(), len(tally.broken))
    cells = re.split(r"(?<=\S)(?=\s)", COLUMNS)
    figures = zip(cells, (*attacks, *peace), strict=True)
    print(f"  {name:11}" + "".join(f"{figure:{len(cell)}}" for cell, figure in figures))


async def measured(policy: Policy, dojo: list[Suite], rules: tuple[ToolRule, ...]) -> Tally:
    """All suites under one policy, told as they end."""
    print(f"\n{policy.name}")
    print(f"  {'':11}{COLUMNS}")
    tallies = []
    async with stage() as on:
        for suite in dojo:
            tally = await under_attack(on, suite, policy, rules) + await in_peace(on, suite, policy, rules)
            show(suite.name, tally)
            tallies.append(tally)
    whole = reduce(add, tallies)
    show("all", whole)
    print("  asked for: " + ", ".join(f"{tool} {times}" for tool, times in whole.prompts.most_common()))
    return whole


def wrong(policy: Policy, tally: Tally) -> list[str]:
    """What this measurement may not show."""
    found = [f"errand lost though all of it was approved: {one}" for one in tally.broken]
    if policy is NO_GATE and not tally.by_calls:
        found.append("nothing succeeds without the gate: the attack does not work")
    if policy.taint and tally.by_calls:
        found.append(f"{tally.by_calls} injections succeed by calls under {policy.name}")
    return found


def main() -> None:
    only = [name for name in sys.argv[1:] if name != QUESTIONS]
    if unknown := set(only) - {policy.name for policy in POLICIES}:
        sys.exit(f"Not policies: {', '.join(unknown)}. There are: {', '.join(policy.name for policy in POLICIES)}.")
    rules = load_settings({"config": str(RULES)}, {}).settings.tools
    dojo = suites()
    errands, injections = (sum(map(len, each)) for each in zip(*((s.errands, s.injections) for s in dojo), strict=True))
    print(f"AgentDojo {VERSION}: {errands} errands, {injections} injections.")
    print(LEGEND)
    if QUESTIONS in sys.argv:
        questions.show(dojo, rules)
    chosen = [policy for policy in POLICIES if (not only and QUESTIONS not in sys.argv) or policy.name in only]
    found = [text for policy in chosen for text in wrong(policy, asyncio.run(measured(policy, dojo, rules)))]
    attacks.main()
    if QUESTIONS not in sys.argv:
        costs.main()
    sys.exit("\n".join(found) or None)


if __name__ == "__main__":
    main()
