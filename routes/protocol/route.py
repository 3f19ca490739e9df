"""A row of the tables of routes: who may use a route, what it takes and answers.

The server is made of these rows, and so are the OpenAPI document, the tables of docs/http-api.md and the test that asks
each route as each kind of principal. What a route is for is the docstring of its handler: one sentence, then what there
is to know beside it, in Markdown.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from inspect import getdoc
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct
from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response

if TYPE_CHECKING:
    from pydantic import BaseModel

Endpoint = Callable[[Request], Awaitable[Response]]
Rights = Literal["open", "user", "not guests", "owner", "admin"]
Stream = Literal["run", "job", "page", "examination", "lane"]
Tag = Literal[
    "Runs",
    "Sessions",
    "Documents",
    "Memory",
    "Jobs",
    "Workspace",
    "Schedules and triggers",
    "Notifications",
    "Tools and profiles",
    "Models",
    "MCP servers",
    "Server",
    "Clients of other APIs",
]
RIGHTS: Mapping[Rights, str] = {
    "open": "No token is needed.",
    "user": "Any principal; it sees its own.",
    "not guests": "Any principal but guests.",
    "owner": "The owner of what is named; others get 404.",
    "admin": "Admins only; others get 403.",
}
RESUMES = {"Last-Event-ID": "the `id:` of the last event that was received"}

Shape = str | Sequence[Any] | Mapping[str, Any]
"""A JSON value: a type of TYPES, `@Name` for a schema of COMPONENTS, a list with the shape of its items, or an object.

A `?` behind a type says that it may be null, behind a key that it may be left out. Objects may have further fields:
clients ignore those that they do not know.
"""


class Query(Struct, frozen=True):
    """A parameter of the query."""

    name: str
    about: str
    kind: str = "text"
    required: bool = False


class Body(Struct, frozen=True):
    """A JSON body: the model that checks it, or the shape of one that another API has defined, and an example of it."""

    model: type[BaseModel] | Shape
    example: Mapping[str, Any]
    required: bool = True
    partial: bool = False  # each field may be left out


class _Head(Struct, frozen=True):
    """The beginning of a row; all else is given by keyword."""

    name: str  # the method and the path, such as "GET /runs/{run}"
    handler: Endpoint


class Route(_Head, frozen=True, kw_only=True):
    """One method of one path. `answer` is the shape of its JSON, `media` the type of an answer that is none.

    `errors` are statuses beside those that follow from the rest of the row. `about` stands in for the docstring where
    several rows have one handler.
    """

    rights: Rights
    checks_itself: bool = False  # more requests than those of admins are let in, and the handler decides which
    tag: Tag = "Server"
    about: str = ""
    answer: Shape | None = None
    accepted: Shape | None = None  # the JSON of 202, where 200 is a stream
    statuses: tuple[int, ...] = ()  # of answers that are no errors; without any 200, or 204 for an empty one
    errors: tuple[int, ...] = ()
    body: Body | None = None
    takes_file: bool = False  # the body is a file's content
    query: tuple[Query, ...] = ()
    headers: Mapping[str, str] = {}  # what each that it reads is for
    stream: Stream | None = None
    media: tuple[str, ...] = ()
    foreign_errors: bool = False  # in the shape of another API

    @property
    def method(self) -> str:
        return self.name.partition(" ")[0]

    @property
    def path(self) -> str:
        return self.name.partition(" ")[2]

    @property
    def answers(self) -> tuple[int, ...]:
        """The statuses of answers that are no errors."""
        return self.statuses or ((200,) if self.answer or self.stream or self.media else (204,))

    @property
    def summary(self) -> str:
        """The first sentence, without its full stop."""
        return self._sentences[0].removesuffix(".")

    @property
    def details(self) -> str:
        return self._sentences[2]

    @property
    def _sentences(self) -> tuple[str, str, str]:
        return " ".join((self.about or getdoc(self.handler) or "").split()).partition(". ")


def tagged(tag: Tag, *routes: Route) -> tuple[Route, ...]:
    """Return the rows of one part of the documents."""
    return tuple(replace(route, tag=tag) for route in routes)
