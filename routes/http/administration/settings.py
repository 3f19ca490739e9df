"""/settings: the settings that may change while the server runs, for admins."""

from __future__ import annotations

from typing import Any

from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from app.config.runtime_changes import CHANGEABLE, RuntimeSettings
from app.config.settings import Settings
from app.core.strict_model import StrictModel
from routes.protocol.errors import ASCIIResponse
from routes.protocol.requests import read_fields
from routes.protocol.route import Body, Route, tagged
from routes.services import current_principal, services_of


class SettingsRequest(StrictModel):
    """The body of PATCH /settings. `changes` has the new value of each setting; null withdraws a change."""

    changes: dict[str, Any] = Field(min_length=1, max_length=len(CHANGEABLE))


async def list_settings(request: Request) -> Response:
    """Settings that may change.

    While [the server runs](settings.md#changes-while-the-server-runs): each with its value, the one the server was
    started with, and whether it was changed since.
    """
    return ASCIIResponse({"settings": setting_fields(services_of(request).runtime_settings)})


async def change_settings(request: Request) -> Response:
    """Change settings.

    All changes or none, for runs that begin from now on, also after a restart; null withdraws a change.
    """
    principal = current_principal(request)
    body = await read_fields(request, SettingsRequest)
    runtime = services_of(request).runtime_settings
    await runtime.change(body.changes, principal.name)
    return ASCIIResponse({"settings": setting_fields(runtime)})


def setting_fields(runtime: RuntimeSettings) -> list[dict[str, Any]]:
    current, started = runtime.current, runtime.started
    return [
        {
            "name": name,
            "value": getattr(current, name),
            "started_with": getattr(started, name),
            "changed": name in runtime.changes,
            "description": Settings.model_fields[name].description,
        }
        for name in CHANGEABLE
    ]


ROUTES = tagged(
    "Server",
    Route("GET /settings", list_settings, rights="admin", answer={"settings": ["@Setting"]}),
    Route(
        "PATCH /settings",
        change_settings,
        rights="admin",
        answer={"settings": ["@Setting"]},
        body=Body(SettingsRequest, {"changes": {"max_rounds": 30}}),
    ),
)
