"""A call in the text of a model that calls natively: it is asked once in a run to make it natively.

Such a model may have meant to call, and its server has left the call in the text; or it shows one, or was made to write
it. It knows best. What it writes again is decided on as every call in text is: a quotation asks, another call runs.
"""

from __future__ import annotations

from collections.abc import Collection

from app.core.events import Notice
from app.provenance.native_text import insists
from app.runs.discipline.reminders import times_sent
from app.runs.run_context import RunContext
from app.transcript.reply import Reply
from tools.toolbox import Toolbox

TEXT_CALL = "text_call"  # the code of a notice
ASKED = Notice(TEXT_CALL, "The model calls natively and has written a call as text: it is asked to make it natively.")
NATIVELY = (
    "This call was not run: it was written as text, not made as a native tool call. If you meant it, make it now, as a "
    "native tool call. If you only wanted to show it, put it into a code block."
)


def to_make_natively(reply: Reply, refused: Collection[str], toolbox: Toolbox, context: RunContext) -> dict[str, str]:
    """Return the calls in the text that are to be made natively instead, with the words that ask for it.

    None if this was asked before in the run, or in vain in an earlier one. Calls that name no tool have an answer of
    their own.
    """
    if not reply.doubts_text or times_sent(ASKED, context.totals):
        return {}
    calls = [call for call in reply.found_calls.in_text if call.id not in refused]
    named = [call.id for call in calls if toolbox.tool(toolbox.normalise_call(call.name, call.arguments)[0])]
    if not named or insists(context.conversation.messages[: context.conversation.begins]):
        return {}
    return dict.fromkeys(named, NATIVELY)
