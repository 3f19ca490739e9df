"""The discipline of one run: asked before each round, told of each reply and its results."""

from __future__ import annotations

from app.account import Account
from app.discipline.limits import Limits
from app.discipline.plan import Plan


class Discipline:
    """One per run."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits

    def plan(self, account: Account) -> Plan:
        """The next round."""
        return Plan(ends="round_limit" if account.rounds + 1 >= self.limits.rounds else None)
