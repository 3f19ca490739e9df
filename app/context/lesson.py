"""The form of calls that the prompts of a session teach."""

from __future__ import annotations

from msgspec import Struct

from app.context.compaction.replay import CompactedHistory
from app.core.provider import CallForm, Provider


class Lesson(Struct):
    """Returns the form to teach the model; `history` is that of the session.

    What was taught once stays, although the model has shown since that it calls natively: without it, its server would
    read the whole conversation anew. A summary, behind which it does so in any case, ends it.
    """

    provider: Provider
    history: CompactedHistory | None = None

    def __call__(self) -> CallForm:
        form, model, history = self.provider.call_form, self.provider.model, self.history
        if history is None:
            return form
        if form is not CallForm.NATIVE:
            history.taught = model, form
        elif history.taught and history.taught[0] == model and not self.provider.calls_natively:
            return history.taught[1]
        return form
