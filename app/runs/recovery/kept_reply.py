"""A reply that the history has, as it was when the model had ended it."""

from __future__ import annotations

from app.core.messages import Message
from app.transcript.reply import Reply


class KeptReply(Reply):
    """A whole reply with its calls, those included that were refused."""

    def __init__(self, message: Message) -> None:
        super().__init__({}, fences=lambda: False, new_id=str)
        self.characters = len(message.text)
        self.pictures += message.attachments
        self.stopped = "stop"
        self._shown.write(message.text if message.shown is None else message.shown)
        self._thought.write(message.reasoning)
        self._made = {call.id: call for call in message.calls}
