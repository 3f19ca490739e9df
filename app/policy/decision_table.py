"""The table of decisions: whatever may refuse a call, or make it ask a person, is a row, in order.

`decided` walks rows from the first to the last. Each sees the call and the decision so far, and returns its own
decision, or None to leave it as it is:

    None ──> Ask ──> Refuse        a row may make a decision stricter,
     └─────> Allow ──┘             and one of the `questions` may settle that nobody is asked,

but nothing undoes a refusal: the walk ends there, but for rows that reword it. `by` of a decision is the name of the
row that took it: the audit shows it, and the documentation has the same rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from tools.toolbox import Allow, Decision, Refuse

Subject = TypeVar("Subject")


class DecisionRow(Struct, Generic[Subject], frozen=True):
    """One source of decisions. `gives` and `when` are a sentence: "It refuses a call that ...".

    `opens`: it is asked only while no row has decided anything. `rewords`: it is asked about refusals too.
    """

    name: str
    gives: str
    when: str
    decide: Callable[[Subject, Decision | None], Decision | None]
    opens: bool = False
    rewords: bool = False


def decided(rows: Iterable[DecisionRow[Subject]], subject: Subject, so_far: Decision | None = None) -> Decision | None:
    """Return the decision of these rows; None if none of them has one."""
    for row in rows:
        if (row.opens and so_far is not None) or (isinstance(so_far, Refuse) and not row.rewords):
            continue
        decision = row.decide(subject, so_far)
        if decision is not None:
            named = decision.by or (isinstance(decision, Allow) and not decision.counted)
            so_far = decision if named else replace(decision, by=row.name)
    return so_far
