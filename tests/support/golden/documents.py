"""The stories of documents."""

from __future__ import annotations

from app.core.provider import Finished, TokenUsage
from parsing import BadCall
from tests.support.golden.playing import HOLD, Event, Stage, Story, native


async def open_gate(stage: Stage, event: Event) -> None:
    stage.gate.set()


TRIP = {"title": "Trip", "content": "# Trip\n\nWe go by train.\nWe eat bread.\n"}
DOCUMENTS = {
    "documents": Story(
        "The model writes a document beside the chat, changes it and suggests an edit; another call is cut off.",
        [
            [*native(0, "create_document", TRIP), TokenUsage(100, 30)],
            [*native(0, "update_document", {"document": "Trip", "old": "train", "new": "boat"}), TokenUsage(150, 20)],
            [*native(0, "suggest_edits", {"document": "Trip", "old": "bread", "new": "fish"}), TokenUsage(180, 20)],
            [
                *native(0, "create_document", TRIP)[:-1],
                *(BadCall(0, "", "It was cut off."), TokenUsage(200, 30), Finished("length")),
            ],
            ["Done.", TokenUsage(220, 2)],
        ],
    ),
    "document": Story(
        "A long code block is shown as a document, too.",
        [["A table:\n```c\n" + "x = 1;\n" * 40 + "```\n", HOLD, "That is it.", TokenUsage(100, 99)]],
        reactions={"document.updated": open_gate},
        flags={"documents": "true"},
    ),
}
