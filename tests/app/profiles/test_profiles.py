"""Profiles only narrow: whatever a profile, a session and a request say together, no right is new."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from app.config.settings import Settings, load_settings
from app.config.sources import SettingsError
from app.core.profile_spec import ProfileSpec, SessionDefaults
from app.core.rules import ApprovalMode, WhenAbsent
from app.policy.gate import decide
from app.policy.policy_context import PolicyContext
from app.profiles.cascade import LIMITS, STRICTNESS, Applied, Layers
from app.profiles.library import Profiles
from app.profiles.pinned import REQUEST, TOKEN, Pinned
from app.runs.composition.profiled_options import ProfiledOptions, defaults_of, narrowing_of
from app.runs.run_options import RunOptions
from app.storage.principals import Principal
from tests.support.nightly import at_night
from tools.base.rights import Role
from tools.catalogue import TOOLS
from tools.toolbox import Allow, Ask, Decision, Refuse

pytestmark = pytest.mark.anyio
PATTERNS = st.lists(st.sampled_from(["*", "read_*", "bash", "write_file", "web_*", "[a-m]*", "none"]), max_size=3)
MODES = [ApprovalMode.SANDBOXED, ApprovalMode.ASK, ApprovalMode.DENY]
COUNTS = {"max_rounds": 200, "max_calls": 100, "max_tokens": 10**6}
ARGUMENTS: tuple[dict[str, Any] | None, ...] = (
    None,
    {"command": "rm -r a", "path": "a", "content": "x", "code": "print(1)", "url": "http://example.org/"},
    {"command": "curl example.org", "path": "/etc/passwd", "code": "import os", "url": "http://127.0.0.1/"},
)
LIMIT_VALUES = {name: st.none() | st.integers(1, most) for name, most in COUNTS.items()} | {
    name: st.none() | st.floats(1, 9000) for name in ("time_limit_s", "inactivity_s")
}
ABSENT = st.none() | st.sampled_from(WhenAbsent)
MEMORY = st.none() | st.booleans()
ANY_MODE = st.none() | st.sampled_from(ApprovalMode)
PROFILES = st.builds(
    ProfileSpec,
    tools=st.none() | PATTERNS,
    disabled=PATTERNS,
    approval=ANY_MODE,
    when_absent=ABSENT,
    memory=MEMORY,
    **LIMIT_VALUES,
)
SESSIONS = st.builds(SessionDefaults, approval=ANY_MODE, when_absent=ABSENT, memory=MEMORY, **LIMIT_VALUES)
PRINCIPALS = st.builds(
    Principal, st.just("ann"), st.sampled_from(Role), tools=PATTERNS.map(tuple), disabled=PATTERNS.map(tuple)
)
SETTINGS = st.builds(
    Settings.model_construct,
    approval_guest=st.sampled_from(MODES),
    approval_user=st.sampled_from(MODES),
    approval_admin=st.sampled_from(ApprovalMode),
    max_run_tokens=st.integers(0, 1000),
    max_rounds=st.integers(1, 200),
)


def requests(modes: Any) -> Any:
    return st.builds(RunOptions, approval=modes, when_absent=st.sampled_from(WhenAbsent), memory=MEMORY, **LIMIT_VALUES)


def policy_of(options: RunOptions, mode: ApprovalMode | None, *, boxed: bool, tainted: bool) -> PolicyContext:
    return PolicyContext(
        options.approval or mode or ApprovalMode.SANDBOXED,
        boxed,
        workspace=Path("/work"),
        tainted=tainted,
        when_absent=options.when_absent,
        narrowing=narrowing_of(options),
    )


def rank(decision: Decision) -> int:
    return {Refuse: 0, Ask: 1, Allow: 2}[type(decision)]


def limit(options: RunOptions, settings: Settings, name: str) -> float:
    default = defaults_of(settings, Role.USER)[name]
    return float(getattr(options, name) or default or float("inf"))


@given(
    PRINCIPALS,
    SETTINGS,
    st.data(),
    st.lists(PROFILES, max_size=2),
    st.none() | SESSIONS,
    st.booleans(),
    st.booleans(),
)
@hypothesis_settings(max_examples=at_night(1000, 60), deadline=None)
def test_no_profile_widens_a_right(
    principal: Principal,
    settings: Settings,
    data: st.DataObject,
    specs: list[ProfileSpec],
    session: SessionDefaults | None,
    boxed: bool,
    tainted: bool,
) -> None:
    mine = list(ApprovalMode) if principal.role is Role.ADMIN else MODES
    request = data.draw(requests(st.none() | st.sampled_from(mine)))
    profiles = [Applied(f"p{at}", spec, (TOKEN, REQUEST)[at]) for at, spec in enumerate(specs)]
    layers = Layers(
        defaults_of(settings, principal.role),
        request,
        request.when_absent,
        session,
        profiles,
        supervised=principal.role is not Role.ADMIN,
    )
    options = request.with_pinned(*layers.resolved())
    default = settings.mode_of(principal.role)
    assert (options.approval or default) in mine  # no mode that the principal could not request

    # Without a mode in the request, the session or a profile may set any that the principal could request itself.
    without = [request] if request.approval else [request.model_copy(update={"approval": mode}) for mode in mine]
    states = {"boxed": boxed, "tainted": tainted}
    for tool in TOOLS:
        for arguments in ARGUMENTS:
            now = decide(principal, tool, arguments, policy_of(options, default, **states))
            most = max(rank(decide(principal, tool, arguments, policy_of(one, default, **states))) for one in without)
            assert rank(now) <= most, (tool.name, now)
    for name in LIMITS:
        own = request if getattr(request, name) or not session else session
        base = float(getattr(own, name) or limit(request, settings, name))
        named = [base, *(getattr(spec, name) for spec in specs if getattr(spec, name))]
        assert limit(options, settings, name) == min(named), name
    if False in (request.memory, session and session.memory, *(spec.memory for spec in specs)):
        assert options.memory is False
    policy = policy_of(options, default, **states)
    for spec in specs:
        assert not spec.approval or STRICTNESS[policy.mode] >= STRICTNESS[spec.approval]
        assert policy.unattended or (spec.approval, spec.when_absent).count("deny") == 0
        assert all(
            isinstance(decide(principal, tool, None, policy_of(options, default, **states)), Refuse)
            for tool in TOOLS
            if spec.tools == [] or "*" in spec.disabled
        )


CAREFUL = ProfileSpec(model="small", temperature=0.2, approval=ApprovalMode.ASK, max_rounds=8, prompt="Quote lines.")
BOUND = ProfileSpec(model="tiny", temperature=0.9, approval=ApprovalMode.DENY, max_rounds=12, memory=False)
AUTO = ProfileSpec(approval=ApprovalMode.AUTO)
SESSION = SessionDefaults(model="large", max_rounds=30, approval=ApprovalMode.SANDBOXED)
DEFAULTS = {"model": "default", "approval": ApprovalMode.SANDBOXED, "max_rounds": 20, "temperature": None}
OF_CAREFUL, OF_TOKEN = "profile careful", "profile bound of the token"
# Profile of the token, chosen profile, session, request -> option: value and source.
CASCADE: list[tuple[Any, Any, Any, dict[str, Any], dict[str, tuple[Any, str]]]] = [
    (None, None, None, {}, {"model": ("default", "default"), "max_rounds": (20, "default")}),
    (None, CAREFUL, None, {}, {"model": ("small", OF_CAREFUL), "max_rounds": (8, OF_CAREFUL)}),
    (None, CAREFUL, SESSION, {}, {"model": ("large", "session"), "max_rounds": (8, OF_CAREFUL)}),
    (None, None, SESSION, {}, {"model": ("large", "session"), "max_rounds": (30, "session")}),
    (None, CAREFUL, SESSION, {"model": "mine"}, {"model": ("mine", "request"), "temperature": (0.2, OF_CAREFUL)}),
    (None, CAREFUL, None, {"max_rounds": 3}, {"max_rounds": (3, "request")}),
    (None, CAREFUL, SESSION, {"max_rounds": 100}, {"max_rounds": (8, OF_CAREFUL)}),
    (BOUND, CAREFUL, None, {}, {"model": ("small", OF_CAREFUL), "memory": (False, OF_TOKEN)}),
    (BOUND, None, None, {"memory": True}, {"max_rounds": (12, OF_TOKEN), "memory": (False, OF_TOKEN)}),
    (BOUND, None, None, {}, {"approval": ("deny", OF_TOKEN), "when_absent": ("deny", OF_TOKEN)}),
    (BOUND, CAREFUL, None, {}, {"approval": ("ask", OF_CAREFUL), "when_absent": ("deny", OF_TOKEN)}),
    (None, CAREFUL, None, {"approval": "sandboxed"}, {"approval": ("ask", OF_CAREFUL)}),
    (None, CAREFUL, None, {"approval": "auto"}, {"approval": ("ask", OF_CAREFUL)}),
    (None, AUTO, None, {}, {"approval": ("sandboxed", "default")}),
    (None, CAREFUL, None, {"when_absent": "deny"}, {"when_absent": ("deny", "request")}),
]


@pytest.mark.parametrize(("bound", "chosen", "session", "request_fields", "expected"), CASCADE)
def test_each_value_has_a_source(
    bound: Any, chosen: Any, session: Any, request_fields: dict[str, Any], expected: dict[str, tuple[Any, str]]
) -> None:
    named = [("bound", bound, TOKEN), ("careful", chosen, REQUEST)]
    profiles = [Applied(name, spec, source) for name, spec, source in named if spec]
    request = RunOptions(**request_fields)
    layers = Layers(DEFAULTS, request, request.when_absent, session, profiles)
    values = {one.option: (one.value, one.source) for one in layers.values()}
    assert expected.items() <= values.items()
    options = RunOptions.of_policy(request.with_pinned(*layers.resolved()).policy())  # as the run's row keeps them
    for name, (value, source) in expected.items():
        if options.pinned and name in options.pinned.sources:
            assert (getattr(options, name), options.pinned.sources[name]) == (value, source)
    if not profiles and session is None:
        assert not options.pinned and options.policy() == request.policy()


def test_an_admin_may_choose_a_profile_that_runs_without_asking() -> None:
    layers = Layers(DEFAULTS, RunOptions(), None, None, [Applied("auto", AUTO, REQUEST)], supervised=False)
    assert layers.resolved()[0]["approval"] is ApprovalMode.AUTO


def test_what_is_pinned_holds_on_under_the_profile_of_a_new_token() -> None:
    earlier = Pinned(tools=(("read_*",),), prompt="One.", sources={"max_rounds": OF_CAREFUL})
    both = Pinned(tools=(("*_file",),), prompt="Two.", sources={"max_rounds": "request"}).after(earlier)
    assert both.tools == (("read_*",), ("*_file",)) and both.prompt == "One.\n\nTwo."
    assert both.sources == {"max_rounds": OF_CAREFUL}


async def test_options_that_are_changed_later_stay_below_what_the_run_began_with() -> None:
    """Such as those of a follow-up or a helper, which set limits and approvals anew."""
    layers = Layers(DEFAULTS, RunOptions(), None, None, [Applied("careful", CAREFUL, REQUEST)])
    begun = RunOptions().with_pinned(*layers.resolved())
    changed = begun.model_copy(update={"max_rounds": 150, "approval": ApprovalMode.AUTO, "model": "other"})
    resolver = ProfiledOptions(Settings.model_construct(), Profiles({}, cast(Any, None)))
    for options in (changed, RunOptions.of_policy(changed.policy())):
        kept = await resolver.resolved(Principal("ann", Role.ADMIN), options)
        assert (kept.max_rounds, kept.approval, kept.model) == (8, ApprovalMode.ASK, "other")
        assert kept.pinned == begun.pinned


@pytest.mark.parametrize(
    ("written", "words"),
    [
        ("[profiles.careful]\nmax_roundz = 3", ["profiles", "careful", "max_roundz"]),
        ("[profiles.careful]\nmax_rounds = 0", ["careful", "max_rounds"]),
        ('[profiles.careful]\napproval = "never"', ["careful", "approval"]),
        ('[profiles.careful]\ntools = "read_*"', ["careful", "tools"]),
        ('[profiles.careful]\nprompt = ""', ["careful", "prompt"]),
        ('[profiles."a b"]\nmax_rounds = 1', ["profiles", "a profile's name has 1 to 64"]),
        ("profiles = 3", ["profiles"]),
    ],
)
def test_a_mistake_in_the_file_stops_the_start(tmp_path: Path, written: str, words: list[str]) -> None:
    (tmp_path / "dragoman.toml").write_text(written)
    with pytest.raises(SettingsError) as stopped:
        load_settings({}, {"HOME": str(tmp_path)}, folder=tmp_path)
    assert all(word in str(stopped.value) for word in [*words, "Allowed: tables by names"]), str(stopped.value)
