"""The scope of a run: everything that its calls work with, made once by the run factory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any
from weakref import ref

from msgspec import Struct, field

from app.budget.run_budget import RunBudget
from app.checkpoints.call_changes import CallChanges
from app.checkpoints.checkpoints import Checkpoints
from app.core.provider import CallForm
from app.documents.library import Library
from app.hooks.run_hooks import RunHooks
from app.knowledge.knowledge import CallKnowledge
from app.labels.run_labels import RunLabels
from app.memory.call_memory import OwnMemory
from app.policy.approvals import Approvals
from app.policy.gate import Gate
from app.policy.guards import Guards
from app.provenance.origins import Origins
from app.provenance.quotation import Provenance
from app.provenance.run_marks import RunMarks
from app.runs.discipline.run_terminals import RunTerminals
from app.runs.live_outputs import Outputs
from app.runs.recording.recorder import RunRecorder
from app.runs.tool_results import Results
from app.secrets.library import Secrets
from app.transcript.conversation import Conversation
from app.transcript.run_totals import RunTotals
from tools.base.access import HelperAccess, SessionAccess
from tools.tool import Context, Tool
from tools.toolbox import Toolbox

StandStill = Callable[[], AbstractContextManager[None]]
"""Returns a context in which a time stands still."""


class RunScope(Struct, kw_only=True, weakref=True):
    """`tool_context` is what every tool of the run is given, `call_form` the form of calls that its model is taught.

    `check_not_paused` raises Paused; it is asked before each model request and each tool. In `waiting` the run's time
    stands still. The results of a run that `is_direct` are for programs, too. `given` are texts of the operator and of
    the person, whose values are their own. What is None is switched off.
    """

    toolbox: Toolbox
    gate: Gate
    tool_context: Context
    approvals: Approvals
    run_budget: RunBudget
    check_not_paused: Callable[[], None]
    totals: RunTotals = field(default_factory=RunTotals)
    guards: Guards = field(default_factory=Guards)
    results: Results = field(default_factory=Results)
    outputs: Outputs = field(default_factory=Outputs)
    parallel_reads: bool = True
    waiting: StandStill = nullcontext
    given: Sequence[str] = ()
    provenance: Provenance = field(default_factory=Provenance)
    origins: Origins = field(default_factory=Origins)
    marks: RunMarks | None = None
    changes: CallChanges = field(default_factory=CallChanges)
    call_form: Callable[[], CallForm] = lambda: CallForm.NATIVE
    checkpoints: Checkpoints | None = None
    terminals: RunTerminals = RunTerminals()
    documents: Library | None = None
    memory: OwnMemory | None = None
    knowledge: CallKnowledge | None = None
    labels: RunLabels | None = None
    delegation: Delegation | None = None
    hooks: RunHooks | None = None
    secrets: Secrets | None = None
    recorder: RunRecorder | None = None
    is_direct: bool = False
    app_results: list[dict[str, Any]] = field(default_factory=list)  # whole ones, of calls that an app has made

    def find_tools(self) -> Callable[[str], Tool | None]:
        """Return the look-up of tools by their names, for what this scope holds: it does not hold the scope."""
        scope = ref(self)  # a cycle would wait for the garbage collector, and with it the run's model
        return lambda name: one.toolbox.tool(name) if (one := scope()) else None


class ParentCall(Struct, frozen=True, kw_only=True):
    """A call that reaches for helpers, other models or other sessions. `untimed`: its own time stands still in it."""

    run: str
    call: str
    conversation: Conversation
    scope: RunScope
    time_limit_s: float
    untimed: StandStill


Reach = tuple[HelperAccess | None, SessionAccess | None]
Delegation = Callable[[ParentCall], Reach]
"""Returns the helpers and the other sessions that a call of the run reaches."""


def both(one: StandStill, other: StandStill) -> StandStill:
    @contextmanager
    def waiting() -> Iterator[None]:
        with one(), other():
            yield

    return waiting
