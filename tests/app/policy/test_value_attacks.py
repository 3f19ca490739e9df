"""Attacks that know the rule of values ask; what the rule cannot see is a limit that SECURITY.md names."""

from __future__ import annotations

import pytest

from benchmarks.hijack.attacks import LIMITS, STOPPED, Attack, decision, passes
from tests import ROOT
from tools.toolbox import Ask


@pytest.mark.parametrize("attack", STOPPED, ids=lambda one: one.name)
def test_an_attack_that_knows_the_rule_asks(attack: Attack) -> None:
    assert isinstance(decision(attack), Ask)


@pytest.mark.parametrize("attack", LIMITS, ids=lambda one: one.name)
def test_a_limit_of_the_rule_is_written_down(attack: Attack) -> None:
    """A limit that has gone belongs among the attacks that are stopped, and out of SECURITY.md."""
    assert passes(attack)
    assert attack.name in (ROOT / "SECURITY.md").read_text(), "SECURITY.md names each limit"
