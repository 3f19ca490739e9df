"""Operations of other APIs, for their clients. The shapes are those APIs' own, of which the least is said here."""

from __future__ import annotations

from functools import partial

from routes.openapi.operation import Operation as _Operation
from routes.openapi.operation import Query, rows

Operation = partial(_Operation, foreign_errors=True)
MESSAGES = [{"role": "text"}]
CHAT = {"model": "text", "messages": MESSAGES, "stream?": "boolean"}
EXAMPLE = [{"role": "user", "content": "Hello"}]
LIST = {"data": ["object"]}
OPERATIONS = rows(
    "Clients of other APIs",
    Operation(
        "POST /v1/chat/completions",
        "OpenAI's Chat Completions, streamed or whole",
        {"id": "text", "object": "text", "choices": ["object"]},
        CHAT,
        stream="lane",
        errors=(409,),
        example={"model": "dragoman/agent", "messages": EXAMPLE},
    ),
    Operation(
        "POST /v1/messages",
        "Anthropic's Messages, streamed or whole",
        {"id": "text", "type": "text", "content": ["object"]},
        {**CHAT, "max_tokens": "integer"},
        stream="lane",
        errors=(409,),
        example={"model": "dragoman/agent", "max_tokens": 512, "messages": EXAMPLE},
    ),
    Operation(
        "POST /v1/messages/count_tokens",
        "The tokens of such a request",
        {"input_tokens": "integer"},
        {"model": "text", "messages": MESSAGES},
        errors=(404,),
        example={"model": "dragoman/agent", "messages": EXAMPLE},
    ),
    Operation(
        "POST /v1/responses",
        "OpenAI's Responses, streamed or whole",
        {"id": "text", "object": "text", "output": ["object"]},
        {"model": "text", "input": "any"},
        stream="lane",
        errors=(409,),
        example={"model": "dragoman/agent", "input": "Hello"},
    ),
    Operation(
        "GET /v1/responses/{response}",
        "A response as far as it has come",
        {"id": "text", "output": ["object"]},
        rights="owner",
        stream="lane",
        query=(
            Query("stream", "true streams its events", "boolean"),
            Query("starting_after", "those behind this `sequence_number`", "integer"),
        ),
    ),
    Operation("DELETE /v1/responses/{response}", "Delete a response", "object", rights="owner"),
    Operation("POST /v1/responses/{response}/cancel", "Stop the run of a response", "object", rights="owner"),
    Operation(
        "GET /v1/responses/{response}/input_items",
        "The items of its input",
        LIST,
        rights="owner",
        query=(
            Query("order", "asc or desc, which is the default"),
            Query("limit", "20 by default, 100 at most", "integer"),
            Query("after", "the id of the last item of the page before"),
        ),
    ),
    Operation("GET /v1/models", "The names that `model` may have", LIST),
    Operation("GET /v1/models/{model:path}", "One of them", {"id": "text"}, errors=(404,)),
    Operation(
        "POST /ag-ui",
        "AG-UI, always streamed",
        None,
        {"threadId": "text", "runId": "text", "messages": MESSAGES, "tools?": ["object"], "context?": ["object"]},
        stream="lane",
        errors=(409,),
        example={
            "threadId": "t1",
            "runId": "r1",
            "state": {},
            "tools": [],
            "context": [],
            "forwardedProps": {},
            "messages": [{"id": "m1", "role": "user", "content": "Hello"}],
        },
    ),
    Operation(
        "POST /ui-message-stream",
        "The UI message stream of the AI SDK, always streamed",
        None,
        {"id": "text", "messages": [{"role": "text", "parts": ["object"]}]},
        stream="lane",
        errors=(409,),
        example={
            "id": "c1",
            "messages": [{"id": "m1", "role": "user", "parts": [{"type": "text", "text": "Hello"}]}],
            "trigger": "submit-message",
        },
    ),
    Operation(
        "GET /ui-message-stream/{chat:path}/stream",
        "The chat's run that is under way",
        rights="owner",
        stream="lane",
        ok=(200, 204),
    ),
)
