"""Reminders to the model, for one request only, that bring a run to its end."""

from __future__ import annotations

from collections.abc import Iterable

from app.core.events import Notice
from app.core.provider import ProviderFailed
from app.runs.discipline.limits import Gauge
from app.transcript.run_totals import FAILING, RunTotals

LAST = (
    "No tools can be used any more. Answer now in plain text, from what you know so far. "
    "If something is missing or was not done, say so."
)
AGAIN = (
    "Your last reply ended without a tool call. If you meant to call a tool, call it now. Otherwise give your answer."
)
GO_ON = (
    "Your last answer was cut off by a lost connection. Go on from where it ends and repeat nothing of it. "
    "A tool call that was cut off, or not run, must be made again, whole."
)
CONTINUED = "continued"  # the code of its notice
GOES_ON = "The answer broke off, and the model is asked to go on from there. {why}"
SWITCHES = "The answer broke off, and {model} is asked to go on from there. {why}"
BEGINS = "The answer broke off before its first word, and {model} begins anew. {why}"
NUDGED = "The reply ended as if a tool call were to follow, and none did: the model was asked to go on."
LOOPING = "The model made the same calls with the same results again and again: it answers without tools now."
NEARLY = "Nearly all {unit} of this run are used: the model was told to finish."
FAILED = "The last {count} calls failed. Say what is wrong, and change the way, or ask the person."

MOST_NUDGES = 2
MOST_FAILURES = 4  # calls in a row, of any kind, until the model gets a note
MOST_BREAKS = 2  # of answers in a row, until a run fails


def goes_on(failure: ProviderFailed, shown: str) -> Notice:
    """Return the notice that an answer, of which that was shown, broke off and goes on, perhaps with another model."""
    if (switch := failure.successor) is None:
        return Notice(CONTINUED, GOES_ON.format(why=failure.message))
    message = (SWITCHES if shown.strip() else BEGINS).format(model=switch.answered_by, why=failure.message)
    return Notice(CONTINUED, message, switch.wanted, switch.answered_by, switch.reason)


def nearly_over(gauges: Iterable[Gauge], totals: RunTotals) -> tuple[tuple[str, ...], tuple[Notice, ...]]:
    """The notes and notices about what is nearly used up, each limit once."""
    news = [(gauge, notice) for gauge in gauges if not times_sent(notice := _nearly(gauge), totals)]
    if not news:
        return (), ()
    left = ", ".join(gauge.left for gauge, _ in news)
    return (f"Little is left: {left}. Finish the task now, then give your answer.",), tuple(one for _, one in news)


def failing(totals: RunTotals) -> tuple[tuple[str, ...], tuple[Notice, ...]]:
    """Return the note and the notice about calls that failed in a row: once a row, and at most twice in a run."""
    notice = Notice("nudge", FAILING)
    if totals.warned or totals.failures < MOST_FAILURES or times_sent(notice, totals) >= MOST_NUDGES:
        return (), ()
    return (FAILED.format(count=totals.failures),), (notice,)


def _nearly(gauge: Gauge) -> Notice:
    return Notice("nudge", NEARLY.format(unit=gauge.unit))


def times_sent(notice: Notice, totals: RunTotals) -> int:
    """Return how often this notice was sent."""
    return totals.notices.get((notice.code, notice.message), 0)
