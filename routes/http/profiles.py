"""Profiles: listed, added, deleted; and the options of a run with the layers that their values come from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import ValidationError
from starlette.requests import Request
from starlette.responses import Response

from app.core.profile_spec import ProfileSpec
from app.profiles.cascade import Value
from app.profiles.library import Profile, UnknownProfile
from app.runs.composition.profiled_options import ProfiledOptions, effective_values
from app.runs.run_options import RunOptions
from app.storage.principals import Principal
from app.transcript.run_request import NotFound
from routes.protocol.errors import ASCIIResponse, Refused
from routes.protocol.requests import read_fields
from routes.protocol.route import Body, Query, Route, tagged
from routes.services import Services, current_principal, services_of
from tools.base.rights import Role

MOST_BYTES = 64 * 1024
ABOUT = {"role": "text", "sandbox": "text"}


class ProfileRequest(ProfileSpec):
    """The body of PUT /profiles/{name}. `shared`: for everyone, which is for admins and their default."""

    shared: bool | None = None


def profile_fields(profile: Profile) -> dict[str, Any]:
    spec = profile.spec.model_dump(mode="json", exclude_defaults=True)
    named = {"name": profile.name, "source": profile.source, "version": profile.spec.version}
    return named | {"by": profile.by, "at": profile.at, "options": spec}


async def list_profiles(request: Request) -> Response:
    """The profiles that you may name.

    `name`, `source` (`settings`, `shared` or `own`), `version`, `options`; `bound_to` is the profile that your token
    cannot leave. See [profiles](profiles.md).
    """
    services, principal = services_of(request), current_principal(request)
    rows = [profile_fields(one) for one in await services.factory.profiles.listed(principal.name)]
    return ASCIIResponse({"profiles": services.redactor.redact_value(rows), "bound_to": principal.profile or None})


async def show_profile(request: Request) -> Response:
    """A profile."""
    services = services_of(request)
    profile = await _named(request, services)
    return ASCIIResponse(services.redactor.redact_value(profile_fields(profile)))


async def save_profile(request: Request) -> Response:
    """Add a profile, or replace it whole.

    One of your own, or with `"shared": true`, the default of admins and only for them, one for everyone: 201 for a new
    one. 409 for one of the settings, or to which tokens are bound. Runs that have begun keep the one before.
    """
    services, principal, name = services_of(request), current_principal(request), request.path_params["profile"]
    body = await read_fields(request, ProfileRequest, MOST_BYTES)
    spec = ProfileSpec(**body.model_dump(exclude={"shared"}, exclude_unset=True))
    shared = principal.role is Role.ADMIN if body.shared is None else body.shared
    is_new = await services.factory.profiles.save(principal, name, spec, shared=shared, by=principal.name)
    profile = await services.factory.profiles.named(name, principal.name)
    return ASCIIResponse(profile_fields(profile), 201 if is_new else 200)


async def delete_profile(request: Request) -> Response:
    """Delete a profile."""
    services, principal = services_of(request), current_principal(request)
    profile = await _named(request, services)
    await services.factory.profiles.remove(principal, profile.name, principal.name)
    return Response(status_code=204)


async def _named(request: Request, services: Services) -> Profile:
    """Raises NotFound."""
    try:
        return await services.factory.profiles.named(request.path_params["profile"], current_principal(request).name)
    except UnknownProfile as unknown:
        raise NotFound(str(unknown)) from None


async def show_options(request: Request) -> Response:
    """The options that a run of yours would have.

    Each `option` with its `value` and the layer that it is `from`, and the `tools`; your `role`, the `sandbox`, and if
    you may use any tool, the `workspace` in which they work.
    """
    services, principal = services_of(request), current_principal(request)
    session = request.query_params.get("session") or None
    disabled: Sequence[str] = ()
    if session:
        await services.runs.session(session, principal)
        disabled = (await services.store.session_state(session)).disabled
    try:
        options = RunOptions(profile=request.query_params.get("profile") or None)
    except ValidationError:
        raise Refused(400, "invalid_query", "profile is longer than the name of any profile.") from None
    factory = services.factory
    layers = await ProfiledOptions(factory.settings, services.factory.profiles).layers(principal, options, session)
    values = effective_values(layers, services.models.default.provider.model)
    rows = [*values, *rights_of(principal, disabled)]
    shown = [{"option": one.option, "value": one.value, "from": one.source} for one in rows]
    resolved, pinned = layers.resolved()
    gate = factory.gate_of(principal, options.with_pinned(resolved, pinned))
    tools = [tool.name for tool in gate.offer(factory.tools)]
    return ASCIIResponse(
        {
            "options": services.redactor.redact_value(shown),
            "profiles": [one.shown for one in pinned.profiles],
            "tools": tools,
            "role": principal.role,
            "sandbox": factory.sandbox.level,
            "workspace": str(await factory.workspace_of(principal, session or "")) if tools else None,
        }
    )


def rights_of(principal: Principal, disabled: Sequence[str]) -> list[Value]:
    """The patterns of tools that the token and the session have."""
    rows = (("tools", principal.tools, "token"), ("disabled", principal.disabled, "token"))
    named = [Value(option, list(patterns), source) for option, patterns, source in rows if patterns]
    return [*named, *([Value("disabled", list(disabled), "session")] if disabled else [])]


ROUTES = tagged(
    "Tools and profiles",
    Route(
        "GET /options",
        show_options,
        rights="user",
        answer={"options": ["object"], "profiles": ["any"], "tools": ["text"], "workspace": "text?"} | ABOUT,
        errors=(404,),
        query=(Query("profile", "with this profile"), Query("session", "in this session")),
    ),
    Route("GET /profiles", list_profiles, rights="user", answer={"profiles": ["@Profile"], "bound_to": "text?"}),
    Route("GET /profiles/{profile}", show_profile, rights="owner", answer="@Profile"),
    Route(
        "PUT /profiles/{profile}",
        save_profile,
        rights="user",
        answer="@Profile",
        statuses=(200, 201),
        errors=(409,),
        body=Body(ProfileRequest, {"max_rounds": 5}),
    ),
    Route("DELETE /profiles/{profile}", delete_profile, rights="owner", errors=(409,)),
)
