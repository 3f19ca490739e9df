"""The cascade of a run's options: settings, profile of the token, chosen profile, session, request.

Two kinds of options. What is chosen (model, sampling) is that of the last layer that names it. What limits (tools,
approval, memory, rounds and the like) is never wider than without the profiles:

- a limit is the least of those of the profiles and of that of the request, else of the session, else of the settings;
- the approval mode is that of the request, else of the session, else of a profile, else of the settings, and then the
  strictest of that and the profiles'. A mode that the principal could not request itself is left out;
- memory is off where one layer switches it off; patterns of tools must all match.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct

from app.core.profile_spec import ProfileSpec, RunDefaults, SessionDefaults
from app.core.rules import ApprovalMode, WhenAbsent
from app.core.sampling import Sampling
from app.profiles.pinned import DEFAULT, REQUEST, SESSION, TOKEN, Pinned, PinnedProfile

LIMITS = ("max_rounds", "max_calls", "max_tokens", "time_limit_s", "inactivity_s")
LIMITING = {*LIMITS, "approval", "when_absent", "memory"}
CHOSEN = ("model", *Sampling.model_fields)
# How much a mode asks: `deny` asks as `sandboxed`, of an unattended run.
STRICTNESS = {ApprovalMode.AUTO: 0, ApprovalMode.SANDBOXED: 1, ApprovalMode.DENY: 1, ApprovalMode.ASK: 2}


class Applied(Struct, frozen=True):
    """A profile in force; `source` has named it: the token, the session or the request."""

    name: str
    spec: ProfileSpec
    source: str

    @property
    def pinned(self) -> PinnedProfile:
        limits = self.spec.model_dump(mode="json", include=LIMITING, exclude_none=True)
        return PinnedProfile(self.name, self.spec.version, self.source, limits)

    @classmethod
    def of_pinned(cls, profile: PinnedProfile) -> Applied:
        """Return what a profile limits, as it was when the run began."""
        return cls(profile.name, ProfileSpec(**profile.limits), profile.source)

    @property
    def label(self) -> str:
        return f"profile {self.name} of the token" if self.source == TOKEN else f"profile {self.name}"


class Value(Struct, frozen=True):
    """The value of an option, and the layer that it comes from."""

    option: str
    value: Any
    source: str


class Layers(Struct, frozen=True):
    """All that decides on the options of one run. `profiles`: that of the token first.

    `defaults` are the values of the settings; None or 0 for a limit that does not apply. `supervised`: the principal
    may not request that nothing asks.
    """

    defaults: Mapping[str, Any]
    request: RunDefaults
    request_absent: WhenAbsent | None = None
    session: SessionDefaults | None = None
    profiles: Sequence[Applied] = ()
    supervised: bool = True

    def values(self) -> list[Value]:
        """Every option with its value and source."""
        chosen = [self._chosen(name) for name in CHOSEN]
        limits = [self._limit(name) for name in LIMITS]
        return [*chosen, *self._approval(), self._memory(), *limits, *self._tools(), *self._prompts()]

    def resolved(self) -> tuple[dict[str, Any], Pinned]:
        """The options that the session or a profile takes part in, and what the profiles add to them."""
        values = [one for one in self.values() if one.option in self._named]
        pinned = Pinned(
            tuple(one.pinned for one in self.profiles),
            tuple(tuple(one.spec.tools) for one in self.profiles if one.spec.tools is not None),
            tuple(pattern for one in self.profiles for pattern in one.spec.disabled),
            "\n\n".join(one.value for one in self._prompts()),
            {one.option: one.source for one in values},
        )
        return {one.option: one.value for one in values}, pinned

    @property
    def _profiles(self) -> list[tuple[str, ProfileSpec]]:
        return [(one.label, one.spec) for one in self.profiles]

    @property
    def _session(self) -> list[tuple[str, SessionDefaults]]:
        return [(SESSION, self.session)] if self.session else []

    @property
    def _named(self) -> set[str]:
        """The options of `RunDefaults` that the session or a profile names; of the two on approvals both."""
        specs = [spec for _, spec in (*self._profiles, *self._session)]
        approvals = ("approval", "when_absent")
        named = {name for spec in specs for name in (*CHOSEN, *LIMITS, "memory") if getattr(spec, name) is not None}
        return named | ({*approvals} if any(getattr(spec, one) for spec in specs for one in approvals) else set())

    def _chosen(self, name: str) -> Value:
        for source, spec in ((REQUEST, self.request), *self._session, *reversed(self._profiles)):
            if (value := getattr(spec, name)) is not None:
                return Value(name, value, source)
        return Value(name, self.defaults.get(name), DEFAULT)

    def _base(self, name: str) -> Value:
        """The value without the profiles."""
        for source, spec in ((REQUEST, self.request), *self._session):
            if (value := getattr(spec, name)) is not None:
                return Value(name, value, source)
        return Value(name, self.defaults.get(name) or None, DEFAULT)

    def _limit(self, name: str) -> Value:
        limit = self._base(name)
        for one in self.profiles:
            most = getattr(one.spec, name)
            if most is not None and (limit.value is None or most < limit.value):
                limit = Value(name, most, one.label)
        return limit

    def _memory(self) -> Value:
        layers = [*self._profiles, *self._session, (REQUEST, self.request)]
        off = (Value("memory", False, source) for source, spec in layers if spec.memory is False)
        on = (Value("memory", True, source) for source, spec in reversed(layers) if spec.memory)
        return next(off, None) or next(on, None) or Value("memory", self.defaults.get("memory"), DEFAULT)

    def _approval(self) -> list[Value]:
        mode = self._base_mode()
        for one in self.profiles:
            stricter = one.spec.approval
            if stricter and STRICTNESS[stricter] > STRICTNESS[mode.value]:
                mode = Value("approval", stricter, one.label)
        denying = next(self._denying(mode), None)
        if denying and mode.value is ApprovalMode.SANDBOXED and denying.value is ApprovalMode.DENY:
            return [Value("approval", ApprovalMode.DENY, denying.source), self._absent(denying)]
        return [mode, self._absent(denying)]

    def _base_mode(self) -> Value:
        """The mode of the last layer that names one, of those that the principal could request."""
        if self.request.approval:  # refused later, if it is not for the principal
            return Value("approval", self.request.approval, REQUEST)
        for source, spec in (*self._session, *reversed(self._profiles)):
            mode = spec.approval
            if mode and not (self.supervised and mode is ApprovalMode.AUTO):
                return Value("approval", mode, source)
        return Value("approval", self.defaults["approval"], DEFAULT)

    def _denying(self, mode: Value) -> Iterator[Value]:
        """Every layer by which calls that need approval are refused."""
        if mode.value is ApprovalMode.DENY:
            yield mode
        for source, spec in (*self._profiles, *self._session):
            if spec.approval is ApprovalMode.DENY and (source != SESSION or not self.request.approval):
                yield Value("approval", ApprovalMode.DENY, source)
            if spec.when_absent is WhenAbsent.DENY:
                yield Value("when_absent", WhenAbsent.DENY, source)
        if self.request_absent is WhenAbsent.DENY:
            yield Value("when_absent", WhenAbsent.DENY, REQUEST)

    def _absent(self, denying: Value | None) -> Value:
        if denying:
            return Value("when_absent", WhenAbsent.DENY, denying.source)
        return Value("when_absent", WhenAbsent.WAIT, DEFAULT)

    def _tools(self) -> list[Value]:
        allowed = [Value("tools", one.spec.tools, one.label) for one in self.profiles if one.spec.tools is not None]
        denied = [Value("disabled", one.spec.disabled, one.label) for one in self.profiles if one.spec.disabled]
        return [*allowed, *denied]

    def _prompts(self) -> list[Value]:
        prompts = [Value("prompt", one.spec.prompt, one.label) for one in self.profiles if one.spec.prompt]
        own = ((source, spec.instructions) for source, spec in self._session)
        return [*prompts, *(Value("prompt", text, source) for source, text in own if text)]
