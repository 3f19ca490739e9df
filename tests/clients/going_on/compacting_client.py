"""openai (Python): compacts a conversation, goes on with it, and reads the webhooks of responses in the background.

Reads the address and the key, then, a line each, the webhooks as JSON; writes what it understood.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from openai import OpenAI, OpenAIError

CONVERSATION: list[Any] = [
    {"role": "user", "content": "Tidy the notes."},
    {"role": "assistant", "content": "They are tidy."},
]


def main(url: str, key: str) -> None:
    client = OpenAI(base_url=f"{url}/v1", api_key=key, max_retries=0, timeout=40)
    compacted = client.responses.compact(model="scripted", input=CONVERSATION)
    given = [item.to_dict(mode="json") for item in compacted.output]
    after = client.responses.create(model="scripted", input=[*given, {"role": "user", "content": "And now?"}])
    triggered = client.responses.create(model="scripted", input=[*CONVERSATION, {"type": "compaction_trigger"}])
    ids = [client.responses.create(model="scripted", input="Hello", background=True).id for _ in range(2)]
    row: dict[str, Any] = {
        "object": compacted.object,
        "types": [item.type for item in compacted.output],
        "tokens": compacted.usage.total_tokens,
        "after": after.output_text,
        "triggered": [item.type for item in triggered.output],
        "ids": ids,
    }
    print(json.dumps(row), flush=True)
    for line in sys.stdin:
        hook = json.loads(line)
        try:
            event = client.webhooks.unwrap(hook["body"], hook["headers"], secret=hook["secret"])
            print(json.dumps({"type": event.type, "id": event.data.id, "object": event.object}), flush=True)
        except (OpenAIError, ValueError) as error:
            print(json.dumps({"error": type(error).__name__}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
