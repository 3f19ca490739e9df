"""Resources and prompts of a server: as listed for models and people, within limits, and read on request."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, TypeVar

from msgspec import Struct

from tools.base.escape_invisible import visible
from tools.base.texts import shortened
from tools.mcp.definitions import Definition
from tools.mcp.results import line

Feature = Literal["resources", "prompts"]
FEATURES: tuple[Feature, ...] = ("resources", "prompts")
MAX_LISTED = 500  # of each kind
MAX_URI = 4_096
MAX_FIELD = 1_000  # characters of a name or a description
MAX_ARGUMENTS = 64  # of a prompt
V = TypeVar("V")

_READS = {"type": "object", "properties": {"uri": {"type": "string", "maxLength": MAX_URI}}}
# The host's own tools for a server, named as its requests. That for prompts is only decided on: models use none.
OFFER_TOOLS: Mapping[Feature, Definition] = {
    "resources": Definition(
        "resources/read", {}, "", "Read a resource of this server; without uri, list them.", _READS
    ),
    "prompts": Definition("prompts/get", {}, "", "Use a prompt of this server.", {"type": "object", "properties": {}}),
}


class Resource(Struct, frozen=True):
    """A resource that can be read. `uri` is exact; the other texts are for people and models."""

    uri: str
    name: str
    description: str = ""
    mime_type: str = ""
    size: int | None = None


class ResourceTemplate(Struct, frozen=True):
    """A form of URIs that can be read, once its parts in braces are filled in."""

    uri_template: str
    name: str
    description: str = ""
    mime_type: str = ""


class PromptArgument(Struct, frozen=True):
    """An argument of a prompt; its value is a text."""

    name: str
    description: str = ""
    required: bool = False


class Prompt(Struct, frozen=True):
    """A prompt that a person can choose. `name` is exact."""

    name: str
    title: str = ""
    description: str = ""
    arguments: Sequence[PromptArgument] = ()


class Offers(Struct, frozen=True):
    """The resources, prompts and skills of a server now. The notes name how many of them are left out."""

    resources: Sequence[Resource] = ()
    templates: Sequence[ResourceTemplate] = ()
    prompts: Sequence[Prompt] = ()
    notes: Sequence[str] = ()
    prompt_notes: Sequence[str] = ()
    skills: Sequence[Mapping[str, Any]] = ()  # not checked yet

    @property
    def features(self) -> list[Feature]:
        has = {"resources": bool(self.resources or self.templates), "prompts": bool(self.prompts)}
        return [feature for feature in FEATURES if has[feature]]


def offers_of(
    resources: Sequence[Mapping[str, Any]], templates: Sequence[Mapping[str, Any]], prompts: Sequence[Mapping[str, Any]]
) -> Offers:
    """Return what a server has listed, each once and within limits."""
    notes, prompt_notes = list[str](), list[str]()
    return Offers(
        _within("resource", (_resource(one) for one in resources), "uri", notes),
        _within("resource template", (_template(one) for one in templates), "uri_template", notes),
        _within("prompt", (_prompt(one) for one in prompts), "name", prompt_notes),
        notes,
        prompt_notes,
    )


def listing(offers: Offers) -> str:
    """Return the resources as a model reads them: a line each."""
    lines = [_row(one.uri, one) for one in offers.resources]
    if offers.templates:
        lines += ["With these forms, the parts in braces filled in:"]
        lines += [_row(one.uri_template, one) for one in offers.templates]
    lines += [f"[{note}]" for note in offers.notes]
    return "\n".join(lines) or "This server has no resources now."


def _row(uri: str, one: Resource | ResourceTemplate) -> str:
    name = one.name if one.name != uri else ""
    about = ": ".join(filter(None, (name, one.description)))
    kind = f"({one.mime_type})" if one.mime_type else ""
    return " ".join(filter(None, (uri, line(about), kind)))


def _text(value: object) -> str:
    return shortened(visible(value).strip(), MAX_FIELD) if isinstance(value, str) else ""


def _resource(raw: Mapping[str, Any]) -> Resource:
    size = raw.get("size")
    known = size if isinstance(size, int) and size >= 0 else None
    return Resource(
        raw["uri"],
        _text(raw.get("title") or raw.get("name")),
        _text(raw.get("description")),
        _text(raw.get("mimeType")),
        known,
    )


def _template(raw: Mapping[str, Any]) -> ResourceTemplate:
    name = _text(raw.get("title") or raw.get("name"))
    return ResourceTemplate(raw["uriTemplate"], name, _text(raw.get("description")), _text(raw.get("mimeType")))


def _prompt(raw: Mapping[str, Any]) -> Prompt:
    arguments = [
        PromptArgument(one["name"], _text(one.get("description")), bool(one.get("required")))
        for one in list(raw.get("arguments") or ())[:MAX_ARGUMENTS]
        if is_plain(one["name"])
    ]
    return Prompt(raw["name"], _text(raw.get("title")), _text(raw.get("description")), arguments)


def _within(kind: str, found: Iterable[V], key: str, notes: list[str]) -> Sequence[V]:
    """Return the first ones of each key; note how many are left out."""
    by_key: dict[str, V] = {}
    left_out = 0
    for one in found:
        name = getattr(one, key)
        if name in by_key:
            continue
        if not is_plain(name) or len(by_key) >= MAX_LISTED:
            left_out += 1
        else:
            by_key[name] = one
    if left_out:
        notes.append(f"{left_out:,} more {kind}s are left out: too many, or with odd names.")
    return tuple(by_key.values())


def is_plain(name: str) -> bool:
    """Return whether a name can be given back as it is read."""
    return 0 < len(name) <= MAX_URI and name == visible(name).strip() and name.splitlines() == [name]
