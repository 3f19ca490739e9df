"""/secrets: what commands and MCP servers use and no model sees, for admins; no answer has a value."""

from __future__ import annotations

from typing import Any

from pydantic import Field, SecretStr, field_validator
from starlette.requests import Request
from starlette.responses import Response

from app.config.secret_spec import STORED, SecretSpec
from app.storage.people.secrets import SecretRow
from routes.protocol.errors import ASCIIResponse
from routes.protocol.requests import read_fields
from routes.protocol.route import Body, Route, tagged
from routes.services import current_principal, services_of

OURS = {"name", "value", "replace"}


class SecretRequest(SecretSpec):
    """The body of POST /secrets. `value` is the value itself, which is stored encrypted."""

    name: str = Field(min_length=1, max_length=64)
    value: SecretStr = Field(min_length=1, max_length=8192)
    replace: bool = False

    @field_validator("source")
    @classmethod
    def _kept_away(cls, value: str) -> str:
        """Refuse sources: a token of an admin must not run commands of the server, or read its environment."""
        if value != STORED:
            raise ValueError("is for `dragoman secret add` on the server; send `value`")
        return value

    def spec(self) -> SecretSpec:
        return SecretSpec.model_validate(self.model_dump(exclude=OURS))


async def list_secrets(request: Request) -> Response:
    """Secrets, without their values.

    See [secrets](secrets.md).
    """
    rows = await services_of(request).factory.secrets.rows()
    return ASCIIResponse({"secrets": [secret_fields(row, spec) for row, spec in rows if spec]})


async def add_secret(request: Request) -> Response:
    """Add a secret.

    With `"replace": true` it replaces one of its name. Without `env` and `hosts` it is for MCP servers only. Calls that
    are under way keep the value that they have.
    """
    services = services_of(request)
    body = await read_fields(request, SecretRequest, plain=True)
    secrets, by = services.factory.secrets, current_principal(request).name
    await secrets.add(body.name, body.spec(), body.value.get_secret_value(), by, replaces=body.replace)
    [row] = [row for row, _ in await secrets.rows() if row.name == body.name]
    return ASCIIResponse(secret_fields(row, body.spec()), 201)


async def delete_secret(request: Request) -> Response:
    """Remove a secret. Calls that are under way keep it until they end."""
    await services_of(request).factory.secrets.remove(request.path_params["secret"], current_principal(request).name)
    return Response(status_code=204)


def secret_fields(row: SecretRow, spec: SecretSpec) -> dict[str, Any]:
    about = spec.model_dump(mode="json")
    return {"name": row.name, **about, "by": row.by, "at": row.at, "used": row.used}


ROUTES = tagged(
    "Server",
    Route("GET /secrets", list_secrets, rights="admin", answer={"secrets": ["@Secret"]}),
    Route(
        "POST /secrets",
        add_secret,
        rights="admin",
        answer="@Secret",
        statuses=(201,),
        errors=(409, 503),
        body=Body(
            SecretRequest,
            {"name": "github", "value": "ghp_0123456789abcdef", "env": "GITHUB_TOKEN", "hosts": ["api.github.com"]},
        ),
    ),
    Route("DELETE /secrets/{secret}", delete_secret, rights="admin"),
)
