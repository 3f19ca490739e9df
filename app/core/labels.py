"""Sensitivity labels: their sources and rules as the settings state them, and the check of one run's model requests.

A conversation has a set of labels that only grows. Its requests go to endpoints that may have every one of them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import Annotated, Literal

from msgspec import Struct, field
from pydantic import BaseModel, ConfigDict, Field, StringConstraints

Labels = frozenset[str]
NO_LABELS: Labels = frozenset()
FORBIDDEN = "label_forbidden"  # the code of a request that no endpoint may have
MOST_LABELS = 64
LabelName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9._-]{0,39}$")]
NAME_RULE = "a label has 1 to 40 lower-case letters, digits, . _ - and begins with a letter or digit"
Pattern = Annotated[str, Field(min_length=1, max_length=500)]
Content = Literal["iban", "card_number", "email_address"]


def joined(*parts: Iterable[str]) -> Labels:
    """Return the labels of data that was made of these parts: all of theirs."""
    return frozenset().union(*parts)


class LabelSource(BaseModel, defer_build=True):
    """A label, and the data that has it: files of these paths, results of these MCP servers; a person's marks always.

    `contains` and `patterns` (regular expressions) are of texts: messages and results that have such content. A label
    without sources is for marks alone.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    label: LabelName
    paths: Annotated[tuple[Pattern, ...], Field(max_length=1000)] = ()
    servers: Annotated[tuple[Pattern, ...], Field(max_length=1000)] = ()
    contains: tuple[Content, ...] = ()
    patterns: Annotated[tuple[Pattern, ...], Field(max_length=100)] = ()


class LabelRule(BaseModel, defer_build=True):
    """The places that data with a label may go to.

    `endpoints` are patterns of names; None is any endpoint. `otherwise`: the request of a conversation that none of
    them can answer is refused, or a person is asked. `outward`: calls with effects outside of the workspace ask, are
    refused, or are as without the label. `refuse_tools` are patterns of tools that are refused.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    label: LabelName
    endpoints: Annotated[tuple[Pattern, ...], Field(max_length=1000)] | None = None
    otherwise: Literal["refuse", "ask"] = "refuse"
    outward: Literal["ask", "refuse", "allow"] = "ask"
    refuse_tools: Annotated[tuple[Pattern, ...], Field(max_length=1000)] = ()

    def takes(self, endpoint: str) -> bool:
        return self.endpoints is None or any(fnmatchcase(endpoint, pattern) for pattern in self.endpoints)


class LabelPolicy(Struct, frozen=True):
    """All sources and rules. Without sources nothing is labelled, and nothing is looked at for that."""

    sources: tuple[LabelSource, ...] = ()
    rules: Mapping[str, LabelRule] = MappingProxyType({})

    @property
    def is_used(self) -> bool:
        return bool(self.sources)

    @property
    def names(self) -> tuple[str, ...]:
        """The labels that there are, each once."""
        return tuple(dict.fromkeys(source.label for source in self.sources))

    def withheld(self, labels: Collection[str], endpoint: str, own: Collection[str] | None) -> Labels:
        """Return the labels that this endpoint may not have; `own` is the list in its spec, None without one."""
        return frozenset(
            label
            for label in labels
            if (own is not None and label not in own) or ((rule := self.rules.get(label)) and not rule.takes(endpoint))
        )

    def unmatched(self, endpoints: Collection[str]) -> list[str]:
        """Return a sentence for each rule with a pattern that fits none of the endpoints that there are."""
        there = ", ".join(endpoints) or "none"
        found = list[str]()
        for rule in self.rules.values():
            patterns = [one for one in rule.endpoints or () if not any(fnmatchcase(name, one) for name in endpoints)]
            if patterns:
                names = ", ".join(patterns)
                found.append(
                    f"The rule for the label {rule.label} names {names}, and there is no such endpoint now; "
                    f"there are {there}. Correct the name in label_rules, or add the endpoint."
                )
        return found

    def of_server(self, server: str) -> Labels:
        """Return the labels of an MCP server's results."""
        return frozenset(
            source.label
            for source in self.sources
            if any(fnmatchcase(server.lower(), pattern.lower()) for pattern in source.servers)
        )


NO_POLICY = LabelPolicy()


def policy_of(sources: Iterable[LabelSource], rules: Iterable[LabelRule]) -> LabelPolicy:
    return LabelPolicy(tuple(sources), MappingProxyType({rule.label: rule for rule in rules}))


class Clearance(Struct):
    """The labels of one run's model requests, and the endpoints that a person has approved for some of them.

    Until the labels are known (None), a request may hold anything: only endpoints that may have every label get it.
    """

    policy: LabelPolicy
    labels: Labels | None = None
    approved: set[tuple[str, str]] = field(default_factory=set)  # endpoint and label

    def withheld(self, endpoint: str, own: Collection[str] | None) -> Labels:
        """Return the labels of the requests that this endpoint may not have."""
        labels = self.policy.names if self.labels is None else self.labels
        if not labels:
            return NO_LABELS
        held = self.policy.withheld(labels, endpoint, own)
        return frozenset(label for label in held if (endpoint, label) not in self.approved) if held else held
