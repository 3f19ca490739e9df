"""The metrics of a server, recorded where things happen."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from functools import partial

from app.log.event_writer import EventWriter
from app.metrics.labels import KnownNames
from app.metrics.loop_lag import loop_lag
from app.metrics.recorder import Metrics, Reading
from app.metrics.run_metrics import RunMetrics
from app.metrics.table import COMMIT_BACKLOG, COMMITS_FAILED, FENCED, LOOP_LAG_SECONDS
from app.models.endpoints.endpoint import Endpoint
from app.runs.run_factory import RunFactory
from app.storage.changes import LeaseLost, StoreFailed


@contextmanager
def recording(
    metrics: Metrics, journal: EventWriter, factory: RunFactory, endpoints: Mapping[str, Endpoint]
) -> Iterator[None]:
    """Record runs, model requests and the event loop. Use it before the first run."""

    def commit_readings() -> Iterator[Reading]:
        yield COMMIT_BACKLOG, (), journal.backlog

    metrics.gauges.append(commit_readings)
    names = KnownNames(partial(model_names, endpoints), partial(tool_names, factory))
    factory.runs.ledger.observers.all.append(RunMetrics(metrics, names))
    with loop_lag(metrics.histogram(LOOP_LAG_SECONDS).observe):
        yield


def count_failure(metrics: Metrics, failure: StoreFailed) -> None:
    metrics.add(COMMITS_FAILED)
    if isinstance(failure, LeaseLost):
        metrics.add(FENCED)


def model_names(endpoints: Mapping[str, Endpoint]) -> Collection[str]:
    """Return the models that are configured, or that servers have listed, as ENDPOINT/MODEL."""
    return {f"{name}/{model}" for name, endpoint in endpoints.items() for model in endpoint.models()}


def tool_names(factory: RunFactory) -> Collection[str]:
    """Return the names of the built-in tools and of those of MCP servers."""
    return {tool.name for tool in (*factory.built_in, *factory.mcp.tools())}
