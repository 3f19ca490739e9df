"""The options of a run under the profiles in force: its token's, and the one that the request or the session names.

They are resolved once, when the run begins, and stored with it: its follow-ups and its restoration after a restart have
the same. Without a profile and without options of the session nothing is read and nothing is stored.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from app.config.settings import Settings
from app.core.profile_spec import (
    IN_TEMPORARY,
    MODE_NAMES,
    NEW_FOLDER,
    TEMPORARY,
    SessionDefaults,
    SessionModes,
    check_modes,
    modes_of,
    new_folder,
)
from app.core.rules import WhenAbsent
from app.policy.tool_narrowing import ALL_TOOLS, ToolNarrowing
from app.profiles.cascade import Applied, Layers, Value
from app.profiles.library import Profiles, UnknownProfile
from app.profiles.pinned import DEFAULT, NOTHING, REQUEST, SESSION, Pinned
from app.runs.run_options import RunOptions
from app.storage.principals import Principal
from tools.base.rights import Role
from tools.catalogue import MEMORY

MEMORY_TOOLS = tuple(tool.name for tool in MEMORY)


class ProfiledOptions(Struct, frozen=True):
    """Resolves the options of the runs of one server."""

    settings: Settings
    profiles: Profiles

    async def resolved(self, principal: Principal, options: RunOptions, session: str | None = None) -> RunOptions:
        """Return the options that hold. Those of a run that has begun are kept below its profiles as they were then.

        Raises UnknownProfile, ProfileMissing, ModeFixed, StoreFailed.
        """
        kept = await self.profiles.session_defaults(session)
        if session is not None and options.pinned is None:
            check_modes(options, kept)
        resolved = with_modes(await self._profiled(principal, options, session), kept or options)
        if modes_of(resolved):
            self.profiles.expect_session_options()
        return resolved

    async def _profiled(self, principal: Principal, options: RunOptions, session: str | None) -> RunOptions:
        if (earlier := options.pinned) is not None:
            return await self._kept(principal, options, earlier)
        layers = await self.layers(principal, options, session)
        if not layers.profiles and layers.session is None:
            return options
        return options.with_pinned(*layers.resolved())

    async def _kept(self, principal: Principal, options: RunOptions, earlier: Pinned) -> RunOptions:
        """The options below the profiles that the run began with, and below that of a token that is new since."""
        if principal.profile and not earlier.has(principal.profile):
            new = [await self.profiles.of_token(principal.profile)]
            values, pinned = self._layers(principal, options, None, new).resolved()
            options, earlier = options.with_pinned(values, pinned.after(earlier)), pinned.after(earlier)
        if not earlier.profiles:
            return options
        began_with = [Applied.of_pinned(one) for one in earlier.profiles]
        values, _ = self._layers(principal, options, None, began_with).resolved()
        return options.with_pinned(values, earlier)

    async def layers(self, principal: Principal, options: RunOptions, session: str | None = None) -> Layers:
        """All that decides on a new run. Raises UnknownProfile, ProfileMissing, StoreFailed."""
        defaults = await self.profiles.session_defaults(session)
        applied = [await self.profiles.of_token(principal.profile)] if principal.profile else []
        of_session = defaults.profile if defaults else None
        name, source = (options.profile, REQUEST) if options.profile else (of_session, SESSION)
        if name and name != principal.profile:
            applied.append(await self._applied(name, principal, source))
        return self._layers(principal, options, defaults, applied)

    async def _applied(self, name: str, principal: Principal, source: str) -> Applied:
        try:
            return Applied(name, (await self.profiles.named(name, principal.name)).spec, source)
        except UnknownProfile as unknown:
            if source == SESSION:
                advice = "PATCH /sessions/{id} sets another, or none with profile: null"
                raise UnknownProfile(f"The session's profile does not exist any more. {unknown} {advice}.") from None
            raise

    def _layers(
        self, principal: Principal, options: RunOptions, session: SessionDefaults | None, applied: list[Applied]
    ) -> Layers:
        return Layers(
            defaults_of(self.settings, principal.role),
            options,
            options.when_absent,
            session,
            applied,
            supervised=principal.role is not Role.ADMIN,
        )


def with_modes(options: RunOptions, modes: SessionModes) -> RunOptions:
    """Return the options with these modes instead of their own, and with what the modes set."""
    if not (on := modes_of(modes)) and not modes_of(options):
        return options
    values = {name: getattr(modes, name) for name in MODE_NAMES}
    if values["workspace"] == NEW_FOLDER:
        values["workspace"] = new_folder(temporary=bool(values[TEMPORARY]))
    sets = IN_TEMPORARY if values[TEMPORARY] else {}
    pinned = options.pinned or NOTHING
    sources = pinned.sources | dict.fromkeys((*on, *sets), SESSION)
    return options.with_pinned({**values, **sets}, replace(pinned, sources=sources))


def defaults_of(settings: Settings, role: Role) -> Mapping[str, Any]:
    """The values of the settings, in the words of `POST /chat`."""
    return {
        "model": None,
        "temperature": settings.model_temperature,
        "approval": settings.mode_of(role),
        "when_absent": WhenAbsent.WAIT,
        "memory": settings.memory,
        "max_rounds": settings.max_rounds,
        "max_calls": settings.max_calls,
        "max_tokens": settings.max_run_tokens,
        "time_limit_s": settings.run_time_limit_s,
        "inactivity_s": settings.model_inactivity_s,
    }


def effective_values(layers: Layers, model: str | None) -> list[Value]:
    """Every option with its value and source; `model` is the default one."""
    values = layers.values()
    return [
        Value(one.option, model, one.source) if one.option == "model" and one.value is None else one for one in values
    ]


def narrowing_of(options: RunOptions) -> ToolNarrowing:
    """The tools that the profiles of a run leave; without memory also none of its tools."""
    pinned = options.pinned or NOTHING
    if not (pinned.tools or pinned.disabled or options.memory is False or options.read_only):
        return ALL_TOOLS
    memory = MEMORY_TOOLS if options.memory is False else ()
    return ToolNarrowing(pinned.names, pinned.tools, pinned.disabled, memory, bool(options.read_only))


def named_by(options: RunOptions, option: str) -> str | None:
    """Return the profile or session that an option is from; None if it is the request's or the settings'."""
    source = options.pinned.sources.get(option) if options.pinned else None
    return None if source in (REQUEST, DEFAULT) else source
