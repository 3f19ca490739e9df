"""The lanes, a row each."""

from __future__ import annotations

from routes.lanes.ag_ui.request import read_request as read_ag_ui
from routes.lanes.ag_ui.stream import AGUIEncoder
from routes.lanes.anthropic_messages.answer import whole_message
from routes.lanes.anthropic_messages.request import read_request as read_messages
from routes.lanes.anthropic_messages.stream import MessagesEncoder
from routes.lanes.errors import anthropic_error, openai_error, plain_error
from routes.lanes.lane import Lane, stream_only
from routes.lanes.openai_chat.request import read_chat
from routes.lanes.openai_chat.stream import ChatEncoder
from routes.lanes.openai_chat.whole import whole_chat
from routes.lanes.responses.encoder import ResponseEncoder
from routes.lanes.responses.kept import with_items
from routes.lanes.responses.request import read_responses
from routes.lanes.responses.response import NAME as RESPONSES
from routes.lanes.responses.response import whole as whole_response
from routes.lanes.ui_message_stream.request import read_request as read_ui
from routes.lanes.ui_message_stream.stream import HEADERS, UIStreamEncoder

LANES: tuple[Lane, ...] = (
    Lane("chat", "/v1/chat/completions", read_chat, ChatEncoder, whole_chat, openai_error),
    Lane("messages", "/v1/messages", read_messages, MessagesEncoder, whole_message, anthropic_error),
    Lane(RESPONSES, "/v1/responses", read_responses, ResponseEncoder, whole_response, openai_error, prepare=with_items),
    Lane("ag_ui", "/ag-ui", read_ag_ui, AGUIEncoder, stream_only, openai_error),
    Lane("ui_message_stream", "/ui-message-stream", read_ui, UIStreamEncoder, stream_only, plain_error, HEADERS),
)  # fmt: skip
