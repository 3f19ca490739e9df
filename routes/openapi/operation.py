"""A row of the tables of operations, and the notation of the shapes of answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from msgspec import Struct
from pydantic import BaseModel

Shape = str | Sequence[Any] | Mapping[str, Any]
"""A JSON value: a type of TYPES, `@Name` for a schema of COMPONENTS, a list with the shape of its items, or an object.

A `?` behind a type says that it may be null, behind a key that it may be left out. Objects may have further fields:
clients ignore those that they do not know.
"""

Rights = Literal["open", "user", "not guests", "owner", "admin"]
Stream = Literal["run", "job", "page", "lane"]
TYPES: Mapping[str, Mapping[str, Any]] = {
    "text": {"type": "string"},
    "integer": {"type": "integer"},
    "number": {"type": "number"},
    "boolean": {"type": "boolean"},
    "object": {"type": "object"},
    "any": {},
}
RIGHTS: Mapping[Rights, str] = {
    "open": "No token is needed.",
    "user": "Any principal; it sees its own.",
    "not guests": "Any principal but guests.",
    "owner": "The owner of what is named; others get 404.",
    "admin": "Admins only; others get 403.",
}


class Query(Struct, frozen=True):
    """A parameter of the query."""

    name: str
    about: str
    kind: str = "text"
    required: bool = False


class Operation(Struct, frozen=True):
    """One method of one path. `answer` is the shape of its JSON, `media` the type of an answer that is none.

    `body` is the model that checks the request, or the shape of one that another API has defined; a `body_required` of
    False may be left out. `errors` are statuses beside those that follow from the rest of the row.
    """

    route: str
    summary: str
    answer: Shape | None = None
    body: type[BaseModel] | Shape | None = None
    rights: Rights = "user"
    ok: tuple[int, ...] = (200,)
    errors: tuple[int, ...] = ()
    query: tuple[Query, ...] = ()
    stream: Stream | None = None
    media: tuple[str, ...] = ()
    example: Mapping[str, Any] | None = None
    body_required: bool = True
    partial: bool = False  # each field of the body may be left out
    resumes: bool = False  # takes `Last-Event-ID`
    foreign_errors: bool = False  # in the shape of another API
    takes_file: bool = False  # the body is a file's content

    @property
    def method(self) -> str:
        return self.route.partition(" ")[0]

    @property
    def path(self) -> str:
        return self.route.partition(" ")[2]


def schema_of(shape: Shape) -> dict[str, Any]:
    """The JSON Schema of a shape."""
    if isinstance(shape, str):
        name = shape.removesuffix("?")
        schema = {"$ref": f"#/components/schemas/{name[1:]}"} if name.startswith("@") else dict(TYPES[name])
        if name == shape:
            return schema
        return {"anyOf": [schema, {"type": "null"}]} if "$ref" in schema else {"type": [schema["type"], "null"]}
    if isinstance(shape, Mapping):
        fields = {key.removesuffix("?"): schema_of(value) for key, value in shape.items()}
        required = [key for key in shape if not key.endswith("?")]
        return {"type": "object", "properties": fields} | ({"required": required} if required else {})
    return {"type": "array", "items": schema_of(shape[0]) if shape else {}}


def rows(tag: str, *operations: Operation) -> tuple[tuple[str, Operation], ...]:
    """The operations of one tag."""
    return tuple((tag, operation) for operation in operations)
