"""Rules tried on the past: the same rules change nothing, and others what they are about."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from time import monotonic
from typing import Any

import msgspec
import pytest

from app.core.rules import OperatorRule, ToolRule
from app.policy.decision_facts import Facts
from app.replay.backtest import NO_FACTS, NOT_KEPT, Backtest, Report, Tried
from tests.support.past_calls import SETTINGS, Calls, decide_calls
from tests.support.server.serving import Served, serving
from tools.base.permit import canonical

pytestmark = pytest.mark.anyio
CALLS = 400
LISTS = {"tool": "bash", "action": "deny", "commands": ["ls"], "reason": "No lists.", "name": "lists"}


@asynccontextmanager
async def past(folder: Path, calls: int = CALLS) -> AsyncGenerator[Served, None]:
    script = Calls()
    (folder / "dragoman.toml").write_text(SETTINGS)
    async with asyncio.timeout(120), serving(folder, script) as served:
        await decide_calls(served, script, calls)
        yield served


async def tried(
    served: Served, rules: Sequence[OperatorRule] | None = None, tools: Sequence[ToolRule] | None = None, **more: Any
) -> Report:
    services = served.services
    others = Tried.of(services.settings, rules, tools)
    return await Backtest(store=services.store, tried=others, **{"days": 90, **more}).report()


def ways(report: Report) -> list[tuple[str, ...]]:
    return [(one.tool, one.arguments, one.then, one.then_by, one.now, one.by) for one in report.changes]


async def test_the_same_rules_change_nothing(tmp_path: Path) -> None:
    async with past(tmp_path) as served:
        report = await tried(served)
        assert ways(report) == []
        assert report.calls >= CALLS
        assert report.then == report.now
        assert all(report.then.values())
        assert not report.untried
        assert report.rules.keys() == {"keys", "rules[1]", "rules[3]"}
        rows = await served.services.store.audit(1 << 40, 10_000)
        seen = Counter(row.by for _, row in rows if row.facts)
        wanted = {"role", "token", "plan", "label", "rule", "rule_asks", "untrusted", "outbound", "unattended"}
        assert wanted | {"arguments", "unknown_tool", "person"} <= seen.keys()
        assert {True, False} <= {msgspec.json.decode(row.facts, type=Facts).own for _, row in rows if row.facts}
        assert {"approved", "denied", "expired", "grant withdrawn"} <= {row.decision for _, row in rows}


async def test_other_rules_change_the_calls_that_they_are_about(tmp_path: Path) -> None:
    async with past(tmp_path, 200) as served:
        without = await tried(served, [])
        assert {one.then_by for one in without.changes} <= {"rule", "rule_asks", "unattended", "hopeless"}
        assert any((one.then, one.now) == ("refuse", "allow") for one in without.changes)
        lists = OperatorRule.model_validate(LISTS)
        report = await tried(served, [*served.services.settings.rules, lists])
        assert {(one.tool, one.now, one.by, one.rule) for one in report.groups} == {("bash", "refuse", "rule", "lists")}
        listed = {"ls", "ls -l", "ls -l "}
        assert {one.arguments for one in report.changes} <= {canonical({"command": one}) for one in listed}
        assert sum(one.calls for one in report.groups) == report.changed == len(report.changes)
        assert report.rules["lists"] == report.changed
        always = await tried(served, tools=[ToolRule(match="read_file", approval="always")])
        asked = [one for one in always.changes if one.tool == "read_file"]
        assert asked
        assert {(one.now, one.by) for one in asked} <= {("ask", "always"), ("refuse", "unattended")}
        assert always.asked_a_day[1] > always.asked_a_day[0]


@pytest.mark.usefixtures("database")
async def test_it_ends_in_time_and_counts_what_is_not_kept(tmp_path: Path) -> None:
    async with past(tmp_path, 64) as served:
        store = served.services.store
        cut = await tried(served, until=monotonic())
        assert (cut.complete, cut.sessions) == (False, 1)
        one = await tried(served, principal="ann")
        whole = await tried(served)
        assert 0 < one.calls < whole.calls
        assert ways(whole) == []
        assert (await tried(served, days=1e-9)).calls == 0
        rows = await store.audit(1 << 40, 10_000)
        await store._change("UPDATE audit SET facts = '' WHERE principal = 'ann'", ())  # type: ignore[attr-defined]
        earlier = await tried(served)
        assert (earlier.calls, earlier.untried) == (whole.calls - one.calls, {NO_FACTS: one.calls})
        for session in await store.decided_sessions(0, "", 100):
            await store.delete_session(session)
        gone = await tried(served)
        assert (gone.calls, gone.changed) == (0, 0)
        assert gone.untried == {NOT_KEPT: sum(bool(row.facts) for _, row in rows)}
