"""The limits that the labels of a conversation set to its calls."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from app.core.labels import NO_LABELS, LabelPolicy, Labels
from tools.base.rights import names_match
from tools.tool import Tool


class LabelLimits(Struct, frozen=True):
    """`labels` are all of the conversation. `asks` and `refuses` are those whose rules concern calls with effects
    outside of the workspace.

    `servers` are the MCP servers that a label comes from, `tools` those that its rule refuses: pattern and label each.
    `since`: when the last label was added; what was granted before did not consider it.
    """

    labels: Labels = NO_LABELS
    asks: Labels = NO_LABELS
    refuses: Labels = NO_LABELS
    servers: tuple[tuple[str, str], ...] = ()
    tools: tuple[tuple[str, str], ...] = ()
    since: float = 0.0

    def asking(self, tool: Tool) -> Labels:
        """Return the labels because of which an outbound effect of this tool asks."""
        return self.asks - self._own(tool) if self.asks else NO_LABELS

    def refusing(self, tool: Tool) -> Labels:
        """Return the labels because of which an outbound effect of this tool is refused."""
        return self.refuses - self._own(tool) if self.refuses else NO_LABELS

    def refusal(self, tool: Tool) -> str | None:
        """Return why every call of the tool is refused, if it is."""
        for pattern, label in self.tools:
            if names_match((tool.name, tool.through), (pattern,)):
                return f"{tool.name} is refused: this conversation carries the label {label}, whose rule refuses it."
        return None

    def _own(self, tool: Tool) -> Labels:
        """Return the labels that the tool's own server is a source of: it has that data anyway."""
        if tool.origin is None:
            return NO_LABELS
        name = tool.origin.server.lower()
        return frozenset(label for pattern, label in self.servers if names_match((name,), (pattern,)))


NO_LIMITS = LabelLimits()


def limits_of(policy: LabelPolicy, labels: Iterable[str], since: float) -> LabelLimits:
    """Return the limits of a conversation with these labels. A label without a rule asks."""
    there = frozenset(labels)
    rules = {label: policy.rules[label] for label in there if label in policy.rules}
    outward = {label: rules[label].outward if label in rules else "ask" for label in there}
    return LabelLimits(
        there,
        asks=frozenset(label for label, said in outward.items() if said == "ask"),
        refuses=frozenset(label for label, said in outward.items() if said == "refuse"),
        servers=tuple(
            (server.lower(), one.label) for one in policy.sources if one.label in there for server in one.servers
        ),
        tools=tuple((pattern, label) for label, rule in sorted(rules.items()) for pattern in rule.refuse_tools),
        since=since,
    )


def carried(labels: Iterable[str]) -> str:
    """Return the sentence that names the labels of a conversation."""
    names = sorted(labels)
    return f"This conversation carries the label{'s' if len(names) > 1 else ''} {', '.join(names)}."
