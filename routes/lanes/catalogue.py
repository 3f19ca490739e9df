"""The lanes, a row each."""

from __future__ import annotations

from msgspec.structs import replace

from routes.lanes.ag_ui.request import read_request as read_ag_ui
from routes.lanes.ag_ui.stream import AGUIEncoder
from routes.lanes.ag_ui.stream import error_frame as ag_ui_frame
from routes.lanes.anthropic_messages.answer import whole_message
from routes.lanes.anthropic_messages.request import read_request as read_messages
from routes.lanes.anthropic_messages.stream import MessagesEncoder
from routes.lanes.anthropic_messages.stream import error_frame as messages_frame
from routes.lanes.errors import STOPPED, anthropic_error, openai_error, plain_error
from routes.lanes.lane import Lane, stream_only
from routes.lanes.openai_chat.request import read_chat
from routes.lanes.openai_chat.stream import ChatEncoder
from routes.lanes.openai_chat.stream import error_frame as chat_frame
from routes.lanes.openai_chat.whole import whole_chat
from routes.lanes.responses.compaction import whole_compaction
from routes.lanes.responses.encoder import ResponseEncoder
from routes.lanes.responses.kept import with_items
from routes.lanes.responses.request import read_compact, read_responses
from routes.lanes.responses.response import NAME as RESPONSES
from routes.lanes.responses.response import whole as whole_response
from routes.lanes.ui_message_stream.request import read_request as read_ui
from routes.lanes.ui_message_stream.stream import HEADERS, UIStreamEncoder
from routes.lanes.ui_message_stream.stream import error_frame as ui_frame
from routes.protocol.route import Body

MESSAGES = [{"role": "text"}]
CHAT = {"model": "text", "messages": MESSAGES, "stream?": "boolean"}
EXAMPLE = {"model": "dragoman/agent", "messages": [{"role": "user", "content": "Hello"}]}
PARTED = STOPPED["server_stopped"]
LANES: tuple[Lane, ...] = (
    Lane(
        name="chat",
        path="/v1/chat/completions",
        read=read_chat,
        encoder=ChatEncoder,
        whole=whole_chat,
        error=openai_error,
        parting=chat_frame(PARTED),
        about="OpenAI's Chat Completions, streamed or whole. See [Chat Completions](#chat-completions).",
        body=Body(CHAT, EXAMPLE),
        answer={"id": "text", "object": "text", "choices": ["object"]},
    ),
    Lane(
        name="messages",
        path="/v1/messages",
        read=read_messages,
        encoder=MessagesEncoder,
        whole=whole_message,
        error=anthropic_error,
        parting=messages_frame(PARTED),
        about="Anthropic's Messages, streamed or whole. See [Messages](#messages).",
        body=Body({**CHAT, "max_tokens": "integer"}, {**EXAMPLE, "max_tokens": 512}),
        answer={"id": "text", "type": "text", "content": ["object"]},
    ),
    Lane(
        name=RESPONSES,
        path="/v1/responses",
        read=read_responses,
        encoder=ResponseEncoder,
        whole=whole_response,
        error=openai_error,
        prepare=with_items,
        door="responses",
        about="OpenAI's Responses, streamed or whole. See [Responses](#responses).",
        body=Body({"model": "text", "input": "any"}, {"model": "dragoman/agent", "input": "Hello"}),
        answer={"id": "text", "object": "text", "output": ["object"]},
    ),
    Lane(
        name="ag_ui",
        path="/ag-ui",
        read=read_ag_ui,
        encoder=AGUIEncoder,
        whole=stream_only,
        error=openai_error,
        parting=ag_ui_frame(PARTED),
        door="ag-ui",
        disconnect="continue",
        about="AG-UI, always streamed. See [AG-UI](#ag-ui).",
        body=Body(
            {"threadId": "text", "runId": "text", "messages": MESSAGES, "tools?": ["object"], "context?": ["object"]},
            {
                "threadId": "t1",
                "runId": "r1",
                "state": {},
                "tools": [],
                "context": [],
                "forwardedProps": {},
                "messages": [{"id": "m1", "role": "user", "content": "Hello"}],
            },
        ),
    ),
    Lane(
        name="ui_message_stream",
        path="/ui-message-stream",
        read=read_ui,
        encoder=UIStreamEncoder,
        whole=stream_only,
        error=plain_error,
        parting=ui_frame(PARTED),
        headers=HEADERS,
        door="ui-messages",
        disconnect="continue",
        about="The UI message stream of the AI SDK, always streamed. See [its rules](#ui-message-stream).",
        body=Body(
            {"id": "text", "messages": [{"role": "text", "parts": ["object"]}]},
            {
                "id": "c1",
                "messages": [{"id": "m1", "role": "user", "parts": [{"type": "text", "text": "Hello"}]}],
                "trigger": "submit-message",
            },
        ),
    ),
)
BY_NAME = {lane.name: lane for lane in LANES}
COMPACT = replace(
    BY_NAME[RESPONSES],
    path="/v1/responses/compact",
    read=read_compact,
    whole=whole_compaction,
    about="Compact a conversation: its user's messages, and one opaque item for all else. See [Responses](#responses).",
)
