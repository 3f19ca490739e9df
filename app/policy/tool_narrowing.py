"""The tools that the profiles of a run leave of those that its principal may use."""

from __future__ import annotations

from msgspec import Struct

from tools.base.rights import names_match


class ToolNarrowing(Struct, frozen=True):
    """A tool must match a pattern of each list of `allowed`, and none of `disabled`. `profiles` are their names."""

    profiles: str = ""
    allowed: tuple[tuple[str, ...], ...] = ()
    disabled: tuple[str, ...] = ()
    memory: tuple[str, ...] = ()  # the tools of a memory that the run goes without
    read_only: bool = False  # nothing but reading tools

    def objection(self, name: str, also_disabled: str) -> str | None:
        """Return why a tool may not be used; `also_disabled` is another name that switches it off."""
        if not all(names_match((name,), patterns) for patterns in self.allowed):
            return f"{name} is not among the tools of the profile {self.profiles}."
        if names_match((name, also_disabled), self.disabled):
            return f"{name} is disabled by the profile {self.profiles}."
        return f"{name} is not available: this run has no memory." if name in self.memory else None


ALL_TOOLS = ToolNarrowing()
