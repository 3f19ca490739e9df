"""The documents that the model of a run is writing: one whose call comes to nothing is reported as discarded."""

from __future__ import annotations

from collections.abc import Iterator

from app.core.document_events import DocumentFinished, DocumentStarted
from app.core.events import TERMINAL, AgentEvent, ToolFinished, ToolRejected


class OpenDrafts:
    """Watches the events of one run."""

    def __init__(self) -> None:
        self._open: dict[str, str] = {}  # call -> document

    def completed(self, event: AgentEvent) -> Iterator[AgentEvent]:
        """Yield the event, and before it the end of each document that it leaves without one."""
        match event:
            case DocumentStarted(document, call):
                self._open[call] = document
            case DocumentFinished(call=call):
                self._open.pop(call, None)
            case ToolRejected(call=str(call)) | ToolFinished(call=call) if call in self._open:
                yield DocumentFinished(self._open.pop(call), call, ok=False)
            case _ if event.type in TERMINAL:
                for call, document in self._open.items():
                    yield DocumentFinished(document, call, ok=False)
                self._open.clear()
        yield event
