"""The metrics of a server, recorded where things happen."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from functools import partial

from app.log.event_writer import EventWriter
from app.metrics.labels import KnownNames
from app.metrics.loop_lag import loop_lag
from app.metrics.recorder import Metrics, Reading
from app.metrics.replica_metrics import ReplicaMetrics
from app.metrics.run_metrics import RunMetrics
from app.metrics.table import COMMIT_BACKLOG, COMMIT_SECONDS, COMMITS_FAILED, LOOP_LAG_SECONDS
from app.models.endpoints.endpoint import Endpoint
from app.runs.run_factory import RunFactory
from app.runs.shared.shared_runs import SharedRuns
from app.storage.changes import LeaseLost, StoreFailed


@contextmanager
def opened_metrics(journal: EventWriter, factory: RunFactory, endpoints: Mapping[str, Endpoint]) -> Iterator[Metrics]:
    """Record commits, runs, model requests and the event loop. Use it before the first run."""

    def commit_readings() -> Iterator[Reading]:
        yield COMMIT_BACKLOG, (), journal.backlog

    metrics = Metrics()
    journal.observe_commit = metrics.histogram(COMMIT_SECONDS).observe
    replica = replica_metrics(metrics, factory)
    journal.observe_failure = partial(count_failure, metrics, replica)
    metrics.gauges.append(commit_readings)
    names = KnownNames(partial(model_names, endpoints), partial(tool_names, factory))
    factory.runs.ledger.observers.all.append(RunMetrics(metrics, names))
    with loop_lag(metrics.histogram(LOOP_LAG_SECONDS).observe):
        yield metrics


def replica_metrics(metrics: Metrics, factory: RunFactory) -> ReplicaMetrics | None:
    """Return the metrics of a server that shares its runs; None for one that is alone."""
    runs = factory.runs
    if not isinstance(runs, SharedRuns):
        return None
    replica = ReplicaMetrics(metrics, lambda: runs.replicas.left_s)
    runs.observe_takeover = replica.count_takeovers
    return replica


def count_failure(metrics: Metrics, replica: ReplicaMetrics | None, failure: StoreFailed) -> None:
    metrics.add(COMMITS_FAILED)
    if replica and isinstance(failure, LeaseLost):
        replica.count_fenced()


def model_names(endpoints: Mapping[str, Endpoint]) -> Collection[str]:
    """Return the models that are configured, or that servers have listed, as ENDPOINT/MODEL."""
    return {f"{name}/{model}" for name, endpoint in endpoints.items() for model in endpoint.models()}


def tool_names(factory: RunFactory) -> Collection[str]:
    """Return the names of the built-in tools and of those of MCP servers."""
    return {tool.name for tool in (*factory.built_in, *factory.mcp.tools())}
