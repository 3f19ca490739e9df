"""The part of profiles in the options of a run, stored with it: later changes of a profile do not reach it."""

from __future__ import annotations

from typing import Any

from msgspec import Struct, field


class PinnedProfile(Struct, frozen=True):
    """A profile as it was when the run began. `source`: `token`, `session` or `request`, which named it.

    `limits` are those of its options that limit. They hold for whatever is made of the run's options later, such as a
    follow-up with more rounds.
    """

    name: str
    version: str
    source: str
    limits: dict[str, Any] = field(default_factory=dict)

    @property
    def shown(self) -> dict[str, str]:
        """As events and answers have it."""
        return {"name": self.name, "version": self.version, "source": self.source}


class Pinned(Struct, frozen=True, omit_defaults=True):
    """`tools` has a list of patterns for each profile that limits them: a tool must match one of each list.

    `sources` says for each option that a profile or the session has set where its value comes from.
    """

    profiles: tuple[PinnedProfile, ...] = ()
    tools: tuple[tuple[str, ...], ...] = ()
    disabled: tuple[str, ...] = ()
    prompt: str = ""
    sources: dict[str, str] = field(default_factory=dict)

    def __bool__(self) -> bool:
        """Return False for a run without profiles, in a session that sets nothing."""
        return self != NOTHING

    def has(self, name: str) -> bool:
        return any(one.name == name for one in self.profiles)

    @property
    def names(self) -> str:
        """The profiles, for messages."""
        return ", ".join(one.name for one in self.profiles)

    def after(self, earlier: Pinned) -> Pinned:
        """Return both together: the profiles of `earlier` hold on."""
        kept = {name: source for name, source in earlier.sources.items() if self.sources.get(name) in (None, REQUEST)}
        prompt = "\n\n".join(filter(None, (earlier.prompt, self.prompt)))
        return Pinned(
            (*earlier.profiles, *self.profiles),
            (*earlier.tools, *self.tools),
            (*earlier.disabled, *self.disabled),
            prompt,
            self.sources | kept,
        )


NOTHING = Pinned()
DEFAULT, TOKEN, SESSION, REQUEST = "default", "token", "session", "request"
