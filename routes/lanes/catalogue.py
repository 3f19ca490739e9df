"""The lanes, a row each."""

from __future__ import annotations

from routes.lanes.ag_ui.request import read_request as read_ag_ui
from routes.lanes.ag_ui.stream import AGUIEncoder
from routes.lanes.errors import openai_error, plain_error
from routes.lanes.lane import Lane, stream_only
from routes.lanes.ui_message_stream.request import read_request as read_ui
from routes.lanes.ui_message_stream.stream import HEADERS, UIStreamEncoder

LANES: tuple[Lane, ...] = (
    Lane("ag_ui", "/ag-ui", read_ag_ui, AGUIEncoder, stream_only, openai_error),
    Lane("ui_message_stream", "/ui-message-stream", read_ui, UIStreamEncoder, stream_only, plain_error, HEADERS),
)  # fmt: skip
