"""The lanes, a row each."""

from __future__ import annotations

from routes.lanes.anthropic_messages.answer import whole_message
from routes.lanes.anthropic_messages.request import read_request
from routes.lanes.anthropic_messages.stream import MessagesEncoder
from routes.lanes.errors import anthropic_error
from routes.lanes.lane import Lane

LANES = (Lane("messages", "/v1/messages", read_request, MessagesEncoder, whole_message, anthropic_error),)
