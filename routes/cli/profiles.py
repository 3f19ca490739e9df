"""`dragoman profile list | show | set | remove`: shared profiles; and the options of a run, for `dragoman config`."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any, get_args

from pydantic import ValidationError

from app.config.display import as_written
from app.config.settings import Loaded
from app.core.profile_spec import ProfileSpec
from app.core.rules import ApprovalMode, WhenAbsent
from app.policy.current_rights import principal_named
from app.profiles.cascade import Value
from app.profiles.library import (
    InvalidProfile,
    Profile,
    ProfileConflict,
    ProfileForbidden,
    ProfileMissing,
    Profiles,
    UnknownProfile,
)
from app.profiles.pinned import DEFAULT, SESSION
from app.runs.composition.profiled_options import ProfiledOptions, effective_values
from app.runs.run_options import RunOptions
from app.storage.principals import LOCAL_USER, Principal
from app.storage.profiles import SHARED
from app.storage.store import Store
from app.transcript.run_request import NotFound
from routes.cli.columns import action, aligned, flag_problems
from routes.cli.tokens import shared_profile, with_store
from routes.protocol.errors import Refused
from routes.texts.exact import one_line
from tools.base.rights import Role

BY = "the command line"
NOW = "New runs use it; runs in progress keep the profile they started with."
NONE_YET = "There are no profiles. `dragoman profile set NAME ...` adds one; so does [profiles.NAME] in dragoman.toml."
COLUMNS, OPTION_COLUMNS = ("name", "from", "version", "description"), ("option", "value", "from")
PROBLEMS = (UnknownProfile, ProfileConflict, ProfileForbidden, InvalidProfile)


def profile_flags(parser: argparse.ArgumentParser) -> Sequence[argparse.ArgumentParser]:
    """The parsers of the actions, for the flags that all of them have."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    listing = action(actions, "list", "list the profiles from the settings and the shared ones")
    show = action(actions, "show", "show all values of a profile")
    save = action(actions, "set", "add or replace a shared profile")
    remove = action(actions, "remove", "delete a shared profile")
    for child in (show, save, remove):
        child.add_argument("name")
    for field, more in SET_FLAGS.items():
        save.add_argument(f"--{field.replace('_', '-')}", dest=f"its_{field}", **more)
    return listing, show, save, remove


def _number(field: str) -> dict[str, Any]:
    types = get_args(ProfileSpec.model_fields[field].annotation)
    return {"type": int if int in types else float, "metavar": "N", "help": f"{field} of its runs"}


NUMBERS = ("temperature", "max_output_tokens", "top_p", "seed", "frequency_penalty", "presence_penalty")
LIMITS = ("max_rounds", "max_calls", "max_tokens", "time_limit_s", "inactivity_s")
# Their values are kept as `its_...`: some of the names are settings, too.
SET_FLAGS: Mapping[str, Mapping[str, Any]] = {
    "description": {"metavar": "TEXT", "help": "a one-line description for people"},
    "prompt": {"metavar": "TEXT", "help": "instructions for the model; - reads them from standard input"},
    "tools": {"nargs": "*", "metavar": "GLOB", "help": "only tools with these names; none if no value is given"},
    "disabled": {"nargs": "+", "metavar": "GLOB", "help": "no tools with these names"},
    "model": {"metavar": "MODEL", "help": "the model, unless a request names one"},
    "approval": {"choices": [one.value for one in ApprovalMode], "help": "the approval mode"},
    "when_absent": {"choices": [one.value for one in WhenAbsent], "help": "deny refuses what would ask"},
    "memory": {"choices": ["on", "off"], "help": "off: without memories"},
    "reasoning_effort": {"metavar": "LEVEL", "help": "none, minimal, low, medium, high, xhigh or max"},
    **{field: _number(field) for field in (*NUMBERS, *LIMITS)},
}


def run_profile(args: argparse.Namespace, loaded: Loaded, _environ: Mapping[str, str]) -> int:
    """Exit code 1 when it cannot be done, with the reason on stderr."""
    act = {"list": _list, "show": _show, "set": _set, "remove": _remove}[args.action]
    return with_store(loaded, lambda store: act(Profiles(loaded.settings.profiles, store), args))


async def _list(profiles: Profiles, _args: argparse.Namespace) -> int:
    found = await profiles.listed(SHARED)
    if not found:
        print(NONE_YET)
        return 0
    print("\n".join(aligned(COLUMNS, map(_columns, found))))
    return 0


def _columns(profile: Profile) -> Mapping[str, str]:
    description = one_line(profile.spec.description) or "-"
    named = {"name": profile.name, "from": profile.source, "version": profile.spec.version}
    return named | {"description": description}


async def _show(profiles: Profiles, args: argparse.Namespace) -> int:
    profile = await shared_profile(profiles, args.name)
    for option, value in profile.spec.model_dump(mode="json", exclude_defaults=True).items():
        print(f"{option} = {one_line(json.dumps(value, ensure_ascii=False))}")
    return 0


async def _set(profiles: Profiles, args: argparse.Namespace) -> int:
    given = {field: value for field in SET_FLAGS if (value := getattr(args, f"its_{field}")) is not None}
    if given.get("prompt") == "-":
        given["prompt"] = sys.stdin.read()
    if "memory" in given:
        given["memory"] = given["memory"] == "on"
    try:
        spec = ProfileSpec(**given)
    except ValidationError as wrong:
        raise Refused(422, "unfit_profile", flag_problems(wrong)) from None
    try:
        is_new = await profiles.save(LOCAL_USER, args.name, spec, shared=True, by=BY)
    except PROBLEMS as problem:
        raise Refused(409, "profile_conflict", str(problem)) from None
    print(f"The profile {args.name} is {'added' if is_new else 'replaced'}. {NOW}")
    return 0


async def _remove(profiles: Profiles, args: argparse.Namespace) -> int:
    await shared_profile(profiles, args.name)
    try:
        await profiles.remove(Principal(SHARED, Role.ADMIN), args.name, BY)
    except PROBLEMS as problem:
        raise Refused(409, "profile_conflict", str(problem)) from None
    print(f"The profile {args.name} is removed. Runs that started with it keep it.")
    return 0


def show_options(loaded: Loaded, profile: str | None, session: str | None) -> int:
    """Print the options of a run with this profile in this session; exit code 1 if one of them does not exist."""
    return with_store(loaded, lambda store: _options(loaded, store, profile, session))


async def _options(loaded: Loaded, store: Store, profile: str | None, session: str | None) -> int:
    row = await store.session(session) if session else None
    if session and row is None:
        raise Refused(404, "not_found", f"There is no session {session[:80]!a}; GET /sessions lists yours.")
    owner = await _owner(store, row.principal) if row else LOCAL_USER
    resolver = ProfiledOptions(loaded.settings, Profiles(loaded.settings.profiles, store))
    try:
        layers = await resolver.layers(owner, RunOptions(profile=profile or None), session)
    except (UnknownProfile, ProfileMissing) as problem:
        raise Refused(404, "not_found", str(problem)) from None
    disabled = json.loads(row.disabled) if row else []
    values = effective_values(layers, loaded.settings.model)
    rows = [*values, *([Value("disabled", disabled, SESSION)] if disabled else [])]
    print("\n".join(aligned(OPTION_COLUMNS, (_option(one, loaded) for one in rows))))
    return 0


async def _owner(store: Store, name: str) -> Principal:
    """The principal of a session with its rights; one without a token in use is shown as a user."""
    try:
        return await principal_named(store, name)
    except NotFound:
        return Principal(name, Role.USER)


def _option(value: Value, loaded: Loaded) -> Mapping[str, str]:
    written = as_written(tuple(value.value) if isinstance(value.value, list) else value.value)
    source = loaded.origins.get(OF_SETTING.get(value.option, ""), value.source) if value.source == DEFAULT else ""
    return {"option": value.option, "value": one_line(written), "from": one_line(source or value.source)}


# The settings that options have in other words.
OF_SETTING = {
    "model": "model",
    "temperature": "model_temperature",
    "max_rounds": "max_rounds",
    "max_calls": "max_calls",
    "max_tokens": "max_run_tokens",
    "time_limit_s": "run_time_limit_s",
    "inactivity_s": "model_inactivity_s",
    "memory": "memory",
}
