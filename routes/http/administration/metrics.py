"""/metrics: the figures of this server as text for Prometheus, and the gauges that are read when they are asked for."""

from __future__ import annotations

import asyncio
import platform
import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response

from app.metrics import table
from app.metrics.recorder import Reading
from app.replicas.peers import Body, Refusal, ReplicaGone, Replicas
from app.storage.changes import StoreFailed
from app.storage.database import CHECKPOINTS, DATABASE
from routes.access.metrics_access import METRICS
from routes.protocol.requests import admins_only
from routes.protocol.route import Route, tagged
from routes.services import Services, services_of
from tools.mcp.model import ServerState

QUESTION, ANSWERED_S = "metrics", 3.0  # to another worker, which may be starting, or frozen
RUN_STATES = ("queued", "running", "waiting")
FILES = {"database": DATABASE, "log": f"{DATABASE}-wal", "checkpoints": CHECKPOINTS}


async def show_metrics(request: Request) -> Response:
    """Metrics for Prometheus. The [metrics](monitoring.md#metrics); also for the token that opens nothing else."""
    if request.state.principal is not None:
        admins_only(request.state.principal)
    services, accept = services_of(request), request.headers.get("accept", "")
    text, content_type = await _text(services, accept)
    if services.settings.workers > 1 and services.replication.replicas:
        from app.metrics.exposition import merged

        own = {services.settings.worker: text}
        text = merged(dict(sorted((own | await _texts_of_others(services.replication.replicas, accept)).items())))
    return Response(text.encode(), headers={"Content-Type": content_type, "Vary": "Accept"})


async def _text(services: Services, accept: str) -> tuple[str, str]:
    """Return the figures of this server as text, and its content type."""
    from app.metrics.exposition import Exposition  # with the first request: most servers are never asked

    async with services.metrics.reading:
        figures = Exposition(services.metrics, readings(services))
        body, content_type = await asyncio.to_thread(figures.text, accept)  # 10 ms and more, while tokens arrive
        return await asyncio.to_thread(services.redactor.redact, body.decode()), content_type


def answer_for_metrics(services: Services) -> None:
    """Let the other workers of this machine ask for the figures of this one: any of them answers for all."""

    async def answer(body: Body) -> Body:
        text, _ = await _text(services, body["accept"])
        return {"worker": services.settings.worker, "text": text}

    if services.settings.workers > 1 and services.replication.replicas:
        services.replication.replicas.answerers[QUESTION] = answer


async def _texts_of_others(replicas: Replicas, accept: str) -> dict[int, str]:
    """Return the figures of the other workers that answer in time."""

    async def ask(replica: str) -> None:
        with suppress(ReplicaGone, Refusal, StoreFailed, TimeoutError):
            async with asyncio.timeout(ANSWERED_S):
                answer = await replicas.ask(replica, QUESTION, {"accept": accept})
                texts[answer["worker"]] = answer["text"]

    texts = dict[int, str]()
    others = [one for one in await replicas.nodes.replicas_at(replicas.nodes.here) if one != replicas.me]
    await asyncio.gather(*map(ask, others))
    return texts


def readings(services: Services) -> Iterator[Reading]:
    """Read the gauges. Series that can be there are there, with 0."""
    states = services.runs.states()
    yield from ((table.RUNS, (state,), states[state]) for state in RUN_STATES)
    yield table.APPROVALS_WAITING, (), services.runs.approvals.waiting
    yield from ((table.WATCHERS, (kind,), count) for kind, count in services.presence.kinds().items())
    yield table.JOBS, (), services.jobs.under_way()
    servers = Counter(status.state for status in services.mcp.status())
    yield from ((table.MCP_SERVERS, (state.value,), servers[state]) for state in ServerState)
    yield table.PAUSED, (), services.switch.paused
    yield from endpoint_readings(services)
    yield from disk_readings(services.settings.data_dir, services.settings.workspace)
    yield table.BUILD_INFO, (version("dragoman"), platform.python_version()), 1


def endpoint_readings(services: Services) -> Iterator[Reading]:
    for name, endpoint in services.endpoints.items():
        queue = endpoint.server.queue
        yield table.MODEL_QUEUE, (name, "active"), queue.under_way
        yield table.MODEL_QUEUE, (name, "waiting"), queue.waiting
        yield table.ENDPOINTS, (name,), endpoint.server.health.server_cooldown is None


def disk_readings(data_dir: Path, workspace: Path) -> Iterator[Reading]:
    for label, name in FILES.items():
        with suppress(OSError):  # it may not be there
            yield table.DATABASE_BYTES, (label,), (data_dir / name).stat().st_size
    for label, folder in {"data": data_dir, "workspace": workspace}.items():
        with suppress(OSError):
            yield table.DISK_FREE_BYTES, (label,), shutil.disk_usage(folder).free


ROUTES = tagged(
    "Server",
    Route(f"GET {METRICS}", show_metrics, rights="admin", checks_itself=True, media=("text/plain",)),
)
