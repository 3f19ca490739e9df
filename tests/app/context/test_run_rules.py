"""Rules and facts of a run in its prompt: when each section is there, and what it costs."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.context.run_rules import LEAST_WINDOW, MOST, SHOWN, RunFacts, run_rules, sandbox_facts, sections
from app.models.scripted import Scripted
from tests.support.models.real_models import embedded
from tests.support.server.serving import serving
from tools.base.rights import Risk
from tools.catalogue import TOOLS
from tools.sandbox.sandbox import Bubblewrap, NoSandbox, Unboxed, find_sandbox
from tools.tool import Tool

pytestmark = pytest.mark.anyio
READING = [tool for tool in TOOLS if tool.risk is Risk.READ]
COMMANDS = "Commands run in a sandbox."
TOKENS = {"safety": 30, "approvals": 45, "sandbox": 80, "brevity": 25, "channel": 25}  # at most, of each section


def shown(facts: RunFacts, tools: list[Tool]) -> list[str]:
    return [name for name, text in sections(facts, tools, native=True).items() if text]


@pytest.mark.parametrize(
    ("facts", "tools", "expected"),
    [
        (RunFacts(sandbox=COMMANDS), list(TOOLS), ["safety", "approvals", "sandbox", "brevity"]),
        (RunFacts(sandbox=COMMANDS, styled=True), READING, []),
        (RunFacts(sandbox=COMMANDS), READING, ["brevity"]),
        (RunFacts(channel="terminal"), [], ["channel"]),
    ],
)
def test_each_section_is_there_where_it_applies(facts: RunFacts, tools: list[Tool], expected: list[str]) -> None:
    assert shown(facts, tools) == expected


def test_models_whose_calls_are_taught_get_less() -> None:
    facts = RunFacts(sandbox=COMMANDS, channel="page")
    taught, native = (run_rules(facts, list(TOOLS), LEAST_WINDOW, native=one) for one in (False, True))
    assert COMMANDS in native and COMMANDS not in taught
    assert taught.startswith(native.partition(COMMANDS)[0].strip()) and SHOWN["page"] in taught


def test_an_unattended_run_does_not_wait_for_approvals() -> None:
    attended, alone = (
        run_rules(RunFacts(attended=one), list(TOOLS), LEAST_WINDOW, native=True) for one in (True, False)
    )
    assert "wait until a person approves" in attended and "No person can approve" in alone


async def test_sections_cost_what_the_table_says_and_nothing_in_a_small_window() -> None:
    sandbox = sandbox_facts(find_sandbox(), 3600)
    async with embedded() as (_, model):

        async def tokens(text: str) -> int:
            counted = await model.count_tokens([text])
            assert counted
            return counted[0]

        for channel in SHOWN:
            facts = RunFacts(sandbox=sandbox, channel=channel)  # type: ignore[arg-type]
            for name, text in sections(facts, TOOLS, native=True).items():
                assert await tokens(text) <= TOKENS[name], name
            whole = run_rules(facts, TOOLS, 32_768, native=True)
            assert len(whole) <= MOST and await tokens(whole) <= 250
            assert [run_rules(facts, TOOLS, window, native=True) for window in (4_096, 8_192)] == ["", ""]


def test_the_facts_are_those_of_the_sandbox() -> None:
    assert sandbox_facts(NoSandbox("none"), 60) == ""
    assert "without a sandbox" in sandbox_facts(Unboxed(Path("/usr/bin/python3")), 60)
    box = find_sandbox()
    if isinstance(box, Bubblewrap):
        facts = sandbox_facts(box, 60)
        assert "no network but the hosts" in facts and "60 s" in facts and "python3" in facts


async def test_a_run_is_told_the_same_in_every_round_and_the_setting_switches_it_off(tmp_path: Path) -> None:
    replies = ["```bash\necho one\n```", "```bash\necho two\n```", "Done."]
    for flags, says in (({}, True), ({"prompt_rules": False}, False), ({"window": 8192}, False)):
        provider = Scripted(replies)
        (folder := tmp_path / str(flags)).mkdir()
        async with serving(folder, provider, **flags) as served:
            await served.chat("Go", channel="messenger")
        prompts = {request.opening()[0].text for request in provider.requests}
        assert len(prompts) == 1 and (SHOWN["messenger"] in prompts.pop()) is says, flags
