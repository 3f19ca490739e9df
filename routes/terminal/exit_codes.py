"""The exit codes of `dragoman chat` (docs/terminal.md), and the end of a run as one of them."""

from __future__ import annotations

from app.core.events import AgentEvent, RunFinished

ANSWERED, FAILED, USAGE, UNREACHABLE, UNAPPROVED, INTERRUPTED = 0, 1, 2, 3, 4, 130


def exit_code(ended: AgentEvent | None, *, denied: bool = False) -> int:
    """The code of a run that ended so. `denied`: a call was denied because no person could be asked."""
    match ended:
        case RunFinished(reason="cancelled"):
            return INTERRUPTED
        case RunFinished(reason="answered"):
            return UNAPPROVED if denied else ANSWERED
        case _:
            return FAILED
