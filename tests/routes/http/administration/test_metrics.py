"""GET /metrics: what a chat adds, who may read it, and labels that nobody from outside can invent."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from pathlib import Path

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_metrics
from prometheus_client.parser import text_string_to_metric_families as prometheus_text

from app.core.provider import Finished, Piece, ProviderFailed, TextChunk, TokenUsage
from app.metrics.exposition import Exposition
from app.metrics.recorder import OTHER, Metrics
from app.metrics.table import METRICS, MOST_SERIES, NOTICES, TAKEOVERS
from app.models.scripted import Raise, Scripted
from routes.replication.several_servers import observe_replica
from tests.support.access.people import bearer
from tests.support.documented.process_metrics import PROCESS_METRICS
from tests.support.server.serving import Served, serving, until

pytestmark = pytest.mark.anyio
Figures = dict[tuple[str, frozenset[str]], float]
LIMIT_S = 30
ANSWER: list[Piece] = [TextChunk("Two "), TextChunk("words."), TokenUsage(20, 3, cached=8), Finished("stop")]
CALL = "```write_file\nnote.txt\nfirst\n```"
UNKNOWN = '<tool_call>\n{"name": "secrets_of_ann", "arguments": {}}\n</tool_call>'
FAILS = [Raise(ProviderFailed("model_refused", "It does not answer that. Ask another model.", retryable=False))]


async def figures(served: Served) -> Figures:
    """All samples, by name and the values of their labels."""
    answer = await served.client.get("/metrics")
    assert answer.status_code == 200, answer.text
    return {
        (sample.name, frozenset(sample.labels.values())): sample.value
        for family in prometheus_text(answer.text)
        for sample in family.samples
    }


def figure(found: Figures, name: str, *labels: str) -> float:
    return found.get((name, frozenset(labels)), 0.0)


async def test_a_chat_moves_the_figures(tmp_path: Path) -> None:
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, Scripted([CALL, ANSWER, UNKNOWN, "Done.", FAILS])) as served:
        for _ in range(3):
            await served.chat()
        found = await figures(served)
    model = next(value for name, labels in found if name == "dragoman_tokens_total" for value in labels if "/" in value)
    assert figure(found, "dragoman_runs_started_total") == 3
    assert figure(found, "dragoman_runs_finished_total", "answered") == 2
    assert figure(found, "dragoman_runs_failed_total", "model_refused") == 1
    assert figure(found, "dragoman_rounds_total") == 5
    assert figure(found, "dragoman_tokens_total", model, "cached") == 8
    assert figure(found, "dragoman_tokens_total", model, "completion") >= 3
    assert figure(found, "dragoman_model_requests_total", model, "round", "ok") == 4
    assert figure(found, "dragoman_model_requests_total", model, "round", "model_refused") == 1
    assert figure(found, "dragoman_first_token_seconds_count", model) == 4
    assert figure(found, "dragoman_tool_seconds_count", "write_file", "ok") == 1
    assert figure(found, "dragoman_tools_rejected_total", OTHER) == 1
    assert figure(found, "dragoman_commit_seconds_count") > 0
    assert figure(found, "dragoman_http_requests_total", "POST", "/chat", "2xx") == 3
    assert figure(found, "dragoman_runs", "running") == 0
    assert figure(found, "dragoman_database_bytes", "database") > 0
    assert not any("secrets_of_ann" in value for _, labels in found for value in labels)


async def test_paths_and_models_of_clients_are_no_labels(tmp_path: Path) -> None:
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, Scripted([])) as served:
        for number, method in enumerate(("PURGE", "PROPFIND", "MKCOL")):
            assert (await served.client.get(f"/no/such/{number}")).status_code == 404
            assert (await served.client.get(f"/runs/run_{number}")).status_code == 404
            await served.client.request(method, "/chat")
            await served.client.post("/chat", json={"message": "x", "model": f"mine-{number}"})
        found = await figures(served)
    assert figure(found, "dragoman_http_requests_total", "GET", "none", "4xx") == 3
    assert figure(found, "dragoman_http_requests_total", "GET", "/runs/{run}", "4xx") == 3
    assert figure(found, "dragoman_http_requests_total", OTHER, "none", "4xx") == 3
    assert figure(found, "dragoman_http_errors_total", "unknown_model") == 3
    values = {value for _, labels in found for value in labels}
    assert not any(part in value for value in values for part in ("such", "PURGE", "mine", "run_"))


async def test_gauges_are_read_when_they_are_asked_for(tmp_path: Path) -> None:
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, Scripted([CALL, "Done."])) as served:
        async with aclosing(served.turn(message="x", approval="ask")) as turn:
            run = (await until(turn, "run.started"))["run"]
            question = await until(turn, "approval.required")
            found = await figures(served)
            assert figure(found, "dragoman_runs", "waiting") == figure(found, "dragoman_approvals_waiting") == 1
            assert figure(found, "dragoman_watchers", "other") == 1
            await served.client.post(f"/runs/{run}/approvals/{question['call']}", json={"decision": "deny"})
            await until(turn, "run.finished")
        found = await figures(served)
    assert figure(found, "dragoman_approvals_total", "denied") == 1
    assert figure(found, "dragoman_runs", "waiting") == figure(found, "dragoman_approvals_waiting") == 0


async def test_refusals_by_budgets_are_counted(tmp_path: Path) -> None:
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, Scripted([]), tokens_per_month=10) as served:
        assert (await served.client.post("/chat", json={"message": "x"})).status_code == 429
        found = await figures(served)
    assert figure(found, "dragoman_budget_refusals_total", "request") == 1
    assert figure(found, "dragoman_http_errors_total", "budget") == 1


def test_a_metric_has_a_limited_number_of_series() -> None:
    metrics = Metrics()
    for number in range(2 * MOST_SERIES):
        metrics.add(NOTICES, f"code_{number}")
    assert len(metrics.counters[NOTICES.name]) == MOST_SERIES + 1
    assert metrics.counters[NOTICES.name][OTHER,] == MOST_SERIES


async def test_both_formats_have_every_metric_of_the_table(tmp_path: Path) -> None:
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, Scripted([ANSWER])) as served:
        await served.chat()
        plain = await served.client.get("/metrics")
        opened = await served.client.get("/metrics", headers={"accept": "application/openmetrics-text; version=1.0.0"})
    assert plain.headers["content-type"].startswith("text/plain; version=")
    assert opened.headers["content-type"].startswith("application/openmetrics-text; version=1.0.0")
    assert opened.text.endswith("# EOF\n")
    expected = {one.name for one in METRICS if not one.of_replicas} | PROCESS_METRICS.keys()
    suffixed = {family.name for family in prometheus_text(plain.text)}
    assert {name.removesuffix("_total") for name in expected} <= {name.removesuffix("_total") for name in suffixed}
    families = {family.name: family for family in open_metrics(opened.text)}  # type: ignore[no-untyped-call]
    assert {one.family for one in METRICS if not one.of_replicas} <= families.keys()
    assert all(families[one.family].unit == one.unit for one in METRICS if not one.of_replicas)
    assert not any(one.family in families for one in METRICS if one.of_replicas)


@pytest.mark.parametrize(
    "accept", ["application/openmetrics-text; version=abc", "text/plain; version=", ";,;", "\u0661"]
)
async def test_a_header_that_cannot_be_read_gets_the_plain_format(accept: str) -> None:
    text, content_type = Exposition(Metrics()).text(accept)
    assert content_type.startswith("text/plain; version=") or text.endswith(b"# EOF\n")


def test_replicas_have_metrics_of_their_own() -> None:
    metrics = Metrics()
    observe_replica(metrics, lambda: 6.5)
    metrics.add(TAKEOVERS, amount=3)
    text, _ = Exposition(metrics).text()
    read = {one.name: one.value for family in prometheus_text(text.decode()) for one in family.samples}
    assert read["dragoman_lease_left_seconds"] == 6.5
    assert (read["dragoman_takeovers_total"], read["dragoman_fenced_total"]) == (3, 0)


async def test_metrics_are_for_admins_and_for_their_own_token(tmp_path: Path) -> None:
    token = "only-for-prometheus"
    own = {"authorization": f"Bearer {token}"}
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, Scripted([]), metrics_token=token) as served:
        ann, root = await bearer(served, "ann"), await bearer(served, "root", "admin")
        assert (await served.client.get("/metrics", headers=root)).status_code == 200
        assert (await served.client.get("/metrics", headers=ann)).status_code == 403
        assert (await served.client.get("/metrics")).status_code == 401
        assert (
            await served.client.get("/metrics", headers={"authorization": "Bearer only-for-others"})
        ).status_code == 401
        answer = await served.client.get("/metrics", headers=own)
        assert answer.status_code == 200
        assert "ann" not in {
            value for family in prometheus_text(answer.text) for one in family.samples for value in one.labels.values()
        }
        for path in ("/sessions", "/settings", "/metrics/"):
            assert (await served.client.get(path, headers=own)).status_code in (401, 404), path
        assert (await served.client.post("/metrics", headers=own)).status_code == 401


async def test_public_metrics_need_no_token_but_a_host_of_this_server(tmp_path: Path) -> None:
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, Scripted([]), metrics_public=True) as served:
        assert (await served.client.get("/metrics", headers={"host": "evil.example"})).status_code == 403
        await bearer(served, "root", "admin")
        assert (await served.client.get("/metrics")).status_code == 200
        assert (await served.client.get("/sessions")).status_code == 401
