"""The Grafana dashboard and the alert rules name metrics and labels that there are, and leave out none."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import combinations
from typing import Any

import pytest

from app.metrics.table import METRICS, Metric
from tests import ROOT
from tests.support.documented.process_metrics import PROCESS_METRICS

FOLDER = ROOT / "docs" / "grafana"
NAME = re.compile(r"\b(?:dragoman|process)_\w+")
OF_PROMETHEUS = {"le", "instance", "job"}  # labels that it adds
SAMPLES = {
    **{name: Metric(name, "gauge", "") for name in PROCESS_METRICS},
    **{one.name: one for one in METRICS if one.kind != "histogram"},
    **{f"{one.name}_{end}": one for one in METRICS if one.kind == "histogram" for end in ("bucket", "count", "sum")},
}


def dashboard() -> dict[str, Any]:
    read: dict[str, Any] = json.loads((FOLDER / "dragoman.json").read_text("utf-8"))
    return read


def queries() -> Iterator[str]:
    for panel in dashboard()["panels"]:
        yield from (target["expr"] for target in panel.get("targets", ()))


def rules() -> list[str]:
    """The expressions of the rules, on one line each."""
    found = re.findall(r"(?m)^        expr: (?:\|\n((?: {10}.*\n)+)|(.*))", (FOLDER / "alerts.yml").read_text("utf-8"))
    return [" ".join((block or line).split()) for block, line in found]


def labels_in(query: str) -> set[str]:
    """The labels that a query matches, groups by or joins on."""
    matched = {label for inside in re.findall(r"\{([^}]*)\}", query) for label in re.findall(r"(\w+)\s*[=!]", inside)}
    groups = re.findall(r"\b(?:by|on) \(([^)]*)\)", query)
    return matched | {label.strip() for group in groups for label in group.split(",")}


@pytest.mark.parametrize("query", [*queries(), *rules()])
def test_a_query_names_metrics_and_labels_that_there_are(query: str) -> None:
    named = set(NAME.findall(query)) - {"dragoman_build_info"}  # joined to know the servers of dragoman
    known = OF_PROMETHEUS.union(*(SAMPLES[name].labels for name in named))
    if "dragoman_build_info" in query:
        known |= set(SAMPLES["dragoman_build_info"].labels)
    assert labels_in(query) <= known
    assert named or "up{" in query or "dragoman_build_info" in query
    assert query.count("(") == query.count(")") and query.count("{") == query.count("}")


@pytest.mark.parametrize("query", [*queries(), *rules()])
def test_counters_are_read_as_rates(query: str) -> None:
    for name in NAME.findall(query):
        counts = SAMPLES[name].kind != "gauge" or name == "process_cpu_seconds_total"
        rated = re.search(rf"\b(?:rate|increase)\({name}\b", query) is not None
        assert rated is counts, name


def test_every_metric_has_a_panel() -> None:
    shown = {SAMPLES[name].name for query in queries() for name in NAME.findall(query)}
    assert {one.name for one in METRICS} | PROCESS_METRICS.keys() == shown


def test_every_rule_is_described() -> None:
    page = (FOLDER.parent / "monitoring.md").read_text("utf-8")
    names = re.findall(r"- alert: (\w+)", (FOLDER / "alerts.yml").read_text("utf-8"))
    assert set(names) == set(re.findall(r"`(Dragoman\w+)`", page)) and len(names) == len(set(names))


def test_every_rule_is_read() -> None:
    assert len(rules()) == (FOLDER / "alerts.yml").read_text("utf-8").count("- alert:") > 5


def test_panels_have_places_of_their_own() -> None:
    panels = dashboard()["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    places = [panel["gridPos"] for panel in panels]
    assert all(place["x"] + place["w"] <= 24 for place in places)
    assert not [(one, other) for one, other in combinations(places, 2) if overlap(one, other)]


def overlap(one: dict[str, int], other: dict[str, int]) -> bool:
    across = one["x"] < other["x"] + other["w"] and other["x"] < one["x"] + one["w"]
    return across and one["y"] < other["y"] + other["h"] and other["y"] < one["y"] + one["h"]
