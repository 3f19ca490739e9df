"""The stories of helpers."""

from __future__ import annotations

from app.core.provider import TokenUsage
from tests.support.golden.playing import Event, Stage, Story, native


async def approve(stage: Stage, event: Event) -> None:
    if event["state"] == "pending":
        path = f"/runs/{event['path'][-1]}/approvals/{event['approval']}"
        answer = await stage.served.client.post(path, json={"decision": "approve"})
        assert answer.is_success, answer.text


HELPERS = {
    "helper": Story(
        "The model has a helper write a file; the helper's call waits for approval, which the log above it shows.",
        [
            [*native(0, "delegate", {"task": "Write the note.", "tools": ["write_file"]}), TokenUsage(100, 30)],
            [*native(0, "write_file", {"path": "note.txt", "content": "Milk.\n"}), TokenUsage(80, 20)],
            ["It is written.", TokenUsage(120, 4)],
            ["The note is there.", TokenUsage(150, 4)],
        ],
        body={"approval": "ask"},
        reactions={"helper.approval": approve},
        flags={"helpers": "true"},
    ),
}
