"""The documents that the model of a run is writing: one whose call comes to nothing is reported as discarded."""

from __future__ import annotations

from collections.abc import Iterator

from app.core.document_events import DocumentFinished, DocumentStarted
from app.core.events import TERMINAL, AgentEvent, ToolFinished, ToolRejected


class OpenDrafts:
    """Watches the events of one run. While none is `open`, only a DocumentStarted needs `completed`."""

    def __init__(self) -> None:
        self.open: dict[str, str] = {}  # call -> document

    def completed(self, event: AgentEvent) -> Iterator[AgentEvent]:
        """Yield the event, and before it the end of each document that it leaves without one."""
        match event:
            case DocumentStarted(document, call):
                self.open[call] = document
            case DocumentFinished(call=call):
                self.open.pop(call, None)
            case ToolRejected(call=str(call)) | ToolFinished(call=call) if call in self.open:
                yield DocumentFinished(self.open.pop(call), call, ok=False)
            case _ if event.type in TERMINAL:
                for call, document in self.open.items():
                    yield DocumentFinished(document, call, ok=False)
                self.open.clear()
        yield event
