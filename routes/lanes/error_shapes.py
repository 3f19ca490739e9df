"""The shape of an error by the path of its request, for what is refused before a lane is reached, too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import Scope

from routes.lanes.errors import anthropic_error, openai_error, plain_error
from routes.lanes.lane import ErrorBody, Lane
from routes.protocol.errors import AnswerError, Refused, error_answer, native_error

ANTHROPIC_VERSION = "anthropic-version"  # a header of each request to that API
OPENAI_PATHS = "/v1/"
# Of the lanes of the catalogue, which are imported later than this: their errors, as in their rows.
BUILT_IN: dict[str, ErrorBody] = dict.fromkeys(("/v1/chat/completions", "/v1/responses", "/ag-ui"), openai_error)
BUILT_IN |= {"/v1/messages": anthropic_error, "/ui-message-stream": plain_error}


def lane_errors(lanes: Sequence[Lane]) -> AnswerError:
    """The answer to a refused request, in the shape of its path's lane, or of one of these; else the native one."""
    shapes = BUILT_IN | {lane.path: lane.error for lane in lanes}

    def answer(refused: Refused, scope: Scope) -> Response:
        shape = _shape(shapes, scope)
        if shape is None:
            return native_error(refused, scope)
        status, body = shape(refused)
        return error_answer(refused, body, status)

    return answer


def _shape(shapes: Mapping[str, ErrorBody], scope: Scope) -> ErrorBody | None:
    path: str = scope["path"]
    for begins, shape in shapes.items():
        if path == begins or path.startswith(f"{begins}/"):
            return shape
    if not path.startswith(OPENAI_PATHS):
        return None
    return anthropic_error if ANTHROPIC_VERSION in Headers(scope=scope) else openai_error
