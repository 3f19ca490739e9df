"""Trust pins: a server's tools compared with the trusted definitions, and listed, held or removed."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from tools.base.permit import canonical
from tools.base.rights import Origin
from tools.mcp.definitions import PAGES, Definition, UnusableDefinition, definition, difference, sha256
from tools.mcp.model import INSTRUCTIONS, EasedBy, HeldChanged, HeldTool, Pin, ServerConfig, ToolsChanged
from tools.mcp.names import is_wanted, offer_name, public_name
from tools.mcp.skills import IS_SKILL, MAX_LISTED_FILES, MAX_SKILLS, files_of, pinned_skill, skill_definition
from tools.tool import SKILL_REQUEST

REQUESTS = ("resources/read", "prompts/get", SKILL_REQUEST)  # a tool named so would have the trust declared for these


def identity_of(config: ServerConfig) -> str:
    """Return the hash of what runs. A change of it makes another server."""
    folder = [str(config.cwd)] if config.cwd else []  # in another one, a relative path in `args` is another file
    return sha256(canonical([config.transport, config.command, config.args, config.url, *folder]))


class Catalogue:
    """The tools and skills of one server. `unsaved` are the pins that are to be stored."""

    def __init__(self, config: ServerConfig, pins: Iterable[Pin] = (), eased_by: EasedBy | None = None) -> None:
        self.config = config
        self._eased_by = eased_by
        self.identity = identity_of(config)
        self.listed: dict[str, Definition] = {}
        self.skills: dict[str, Definition] = {}
        self.held: dict[str, HeldTool] = {}
        self.notes: list[str] = []
        self.unsaved: list[Pin] = []
        self._offered: dict[str, Definition] = {}
        self._pages: dict[str, Definition] = {}  # as last read
        self._pins: dict[str, Pin] = {}
        self.take_pins(pins)

    @property
    def is_known(self) -> bool:
        """Return whether the server's tools have been listed before."""
        return bool(self._pins)

    @property
    def instructions(self) -> str:
        """The server's instructions, as trusted; empty while a change of them is held."""
        pin = None if INSTRUCTIONS in self.held else self._pins.get(INSTRUCTIONS)
        return str(pin.definition.get("description", "")) if pin else ""

    @property
    def features(self) -> Sequence[str]:
        """The kinds of offers besides tools that the server listed when it was last connected."""
        pin = self._pins.get(INSTRUCTIONS)
        return tuple(pin.definition.get("features", ())) if pin else ()

    def take_pins(self, pins: Iterable[Pin]) -> None:
        """Trust what was trusted before of this same server."""
        self._pins |= {pin.tool: pin for pin in pins if pin.identity == self.identity}
        for pin in self._pins.values():
            wanted = "skills" if IS_SKILL in pin.tool else pin.tool
            if _is_tool(pin.tool) and pin.listed and self.is_wanted(wanted):
                self._list(pin.definition)

    def follow(self, pins: Iterable[Pin]) -> bool:
        """Trust what another process has trusted of this same server meanwhile; return True if that changes anything.

        What this process has seen of the server stays: a tool that differs from its pin is held as before.
        """
        unsaved = {pin.tool for pin in self.unsaved}
        theirs = [pin for pin in pins if pin.identity == self.identity and pin.tool not in unsaved]
        new = [pin for pin in theirs if self._pins.get(pin.tool) != pin]
        if not self._offered:
            self.take_pins(new)
            return bool(new)
        self._pins |= {pin.tool: pin for pin in new}
        accepted = [pin.tool for pin in new if pin.tool in self.held and self._offered[pin.tool].digest == pin.digest]
        for name in accepted:
            del self.held[name]
            self._trust(self._offered[name], again=False)
        return bool(accepted)

    def take(
        self, offered: Mapping[str, Definition], instructions: str, features: Sequence[str] = ()
    ) -> ToolsChanged | None:
        """Take the server's current tools and skills, which `read` has read; return the changes, or None."""
        features_before = self.features
        if tuple(features) != features_before and (pin := self._pins.get(INSTRUCTIONS)):
            self._keep(replace(pin, definition={**pin.definition, "features": list(features)}))
        before, held_before = {*self.listed, *self.skills}, self.held
        self._offered = {**offered, INSTRUCTIONS: _instructions_definition(instructions, features), **self._pages}
        is_first = not self._pins
        self.listed, self.skills, self.held = {}, {}, {}
        for name, one in self._offered.items():
            pin = self._pins.get(name)
            if pin is None and (is_first or not _is_tool(name) or not (why := self._suspect(one))):
                self._trust(one)
            elif pin is None:
                self.held[name] = HeldTool(name, why, difference({}, one.pinned), one.digest)
            elif pin.digest != one.digest:
                self.held[name] = _changed(pin, one)
            else:
                self._trust(one, again=not pin.listed)
        gone = [name for name, pin in self._pins.items() if pin.listed and name not in self._offered]
        for name in filter(_is_tool, gone):
            self._keep(replace(self._pins[name], listed=False))
        listed = {*self.listed, *self.skills}
        added, removed = listed - before, before - listed - set(self.held)
        if not added and not removed and self.held == held_before and self.features == features_before:
            return None
        return ToolsChanged(self.config.name, tuple(sorted(added)), tuple(sorted(removed)), tuple(self.held.values()))

    def take_page(self, page: Definition) -> ToolsChanged | None:
        """Take a page as it was read now: trusted at first sight, held once it differs. None if nothing changes."""
        held_before, pin = dict(self.held), self._pins.get(page.name)
        self._pages[page.name] = self._offered[page.name] = page
        if pin is not None and pin.digest != page.digest:
            self.held[page.name] = _changed(pin, page)
        else:
            self.held.pop(page.name, None)
            self._trust(page, again=pin is None)
        return None if self.held == held_before else ToolsChanged(self.config.name, held=tuple(self.held.values()))

    def _suspect(self, one: Definition) -> str:
        """Return why a tool that appeared after the first connection is held; empty when it is not.

        A rule or a declaration that was written for other tools must not relax the checks of a new one.
        """
        if self.config.new_tools == "hold":
            return "It is new."
        server = self.config.name
        public, origin = public_name(server, one.name), Origin(server, one.name, one.hints)
        if IS_SKILL in one.name:
            public, origin = offer_name(server, "skills"), Origin(server, SKILL_REQUEST)
        eased_by = self._eased_by(public, origin) if self._eased_by else ""
        return f"It is new, and {eased_by} would give it fewer checks than an unknown tool has." if eased_by else ""

    def approve(self, tool: str | None, digest: str | None = None) -> list[str]:
        """Trust what is held as it is offered now. Raises KeyError, and HeldChanged if `digest` is not that tool's."""
        names = list(self.held) if tool is None else [tool]
        if digest is not None and any(self.held[name].digest != digest for name in names):
            raise HeldChanged(f"{names[0][:80]!a} has changed again since you looked at it. Look again.")
        for name in names:
            del self.held[name]
            self._trust(self._offered[name])
        return names

    def read(self, offered: Iterable[Mapping[str, Any]]) -> dict[str, Definition]:
        """Read definitions of tools and skills, with `notes` on what is left out. Hundreds of schemas take seconds."""
        found: dict[str, Definition] = {}
        self.notes = []
        files, skills = 0, 0
        for raw in offered:
            shown = str(raw.get("skill", raw).get("uri" if "skill" in raw else "name"))[:80]
            if not self.is_wanted(str(raw.get("name"))):
                continue
            files += files_of(raw.get("skill"))
            if files > MAX_LISTED_FILES or skills == MAX_SKILLS:
                limits = f"more than {MAX_SKILLS} skills, or {MAX_LISTED_FILES:,} files of them"
                self.notes.append(f"{shown} and what follows was left out: it has {limits}.")
                break
            try:
                one = skill_definition(raw["skill"]) if "skill" in raw else definition(raw)
            except (UnusableDefinition, RecursionError) as error:
                self.notes.append(f"{shown} was left out: {error}.")
                continue
            is_page = one.name.startswith(PAGES)
            if one.name in REQUESTS or is_page or (IS_SKILL in one.name) is not ("skill" in raw):
                self.notes.append(f"{shown} was left out: it has the name of a request.")
                continue
            skills += IS_SKILL in one.name
            if one.name in found:
                self.notes.append(f"{shown} is there twice; the first is taken.")
            found.setdefault(one.name, one)
        return found

    def is_wanted(self, tool: str) -> bool:
        """Return whether the globs of the configuration include a name."""
        return is_wanted(tool, self.config.include, self.config.exclude)

    def _trust(self, one: Definition, *, again: bool = True) -> None:
        if _is_tool(one.name):
            (self.skills if IS_SKILL in one.name else self.listed)[one.name] = one
        if again:
            self._keep(Pin(self.config.name, self.identity, one.name, one.digest, one.pinned))

    def _keep(self, pin: Pin) -> None:
        self._pins[pin.tool] = pin
        self.unsaved.append(pin)

    def _list(self, pinned: Mapping[str, Any]) -> None:
        try:
            one = pinned_skill(pinned) if "files" in pinned else definition(pinned, trusted=True)
        except (UnusableDefinition, KeyError):  # stored by another version
            return
        if (IS_SKILL in one.name) is ("files" in pinned):  # that version may have had a tool of such a name
            self._trust(one, again=False)


def _is_tool(name: str) -> bool:
    """Return whether a pin is that of a tool: others are of the instructions, and of pages."""
    return name != INSTRUCTIONS and not name.startswith(PAGES)


def _changed(pin: Pin, one: Definition) -> HeldTool:
    why = "It was changed since it was trusted."
    return HeldTool(one.name, why, difference(pin.definition, one.pinned), one.digest)


def _instructions_definition(instructions: str, features: Sequence[str]) -> Definition:
    """Return the instructions as a definition. What else the server has goes with them, but is not reviewed."""
    digest = sha256(json.dumps({"description": instructions}))
    pinned = {"description": instructions, "features": list(features)}
    return Definition(INSTRUCTIONS, pinned, digest, instructions, {})
