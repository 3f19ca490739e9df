"""OpenTelemetry: a real collector gets spans and metrics in the words of the conventions, and no run waits for it."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import subprocess
import sys
from collections.abc import Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from app.config.sources import SettingsError
from app.core.events import RunFailed
from app.core.observers import ObservedRun
from app.core.provider import Finished, Piece, TextChunk, TokenUsage
from app.models.scripted import Scripted
from app.redaction.redactor import Redactor
from app.telemetry import conventions as names
from app.telemetry.conventions import OWN, TABLE
from app.telemetry.exporting import Exports, SdkLog
from app.telemetry.opening import opened_telemetry, problems
from routes.lanes.models import AGENT
from tests import ROOT
from tests.support.mcp.served import READS, serving_mcp
from tests.support.models.chatting import WHOLE
from tests.support.models.upstream import answer, upstream
from tests.support.server.collectors import Collector, ReceivedSpan, collector
from tests.support.server.receivers import HANG
from tests.support.server.serving import Served, serving, settings_in, until

pytestmark = pytest.mark.anyio
LIMIT_S = 30
PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
TRACE, SPAN = PARENT.split("-")[1:3]
WRITE = "```write_file\nnote.txt\nsesame words\n```"
READ = "```read_file\nnote.txt\n```"
MCP = ROOT / "fixtures/mcp/traced.py"
COUNTED: list[Piece] = [TextChunk("Two "), TextChunk("words."), TokenUsage(20, 3, cached=4), Finished("stop")]


@pytest.fixture(autouse=True)
def without_standard_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("OTEL_")]:
        monkeypatch.delenv(name)


def names_of(spans: Sequence[ReceivedSpan]) -> list[str]:
    return [span.name for span in spans]


def check_table(got: Collector) -> None:
    """Everything that was exported is in the table."""
    known = {row.name for row in TABLE}
    spans = got.spans()
    used = {name for span in spans for name in span.attributes} | {name for span in spans for name, _ in span.events}
    used |= {name for span in spans for _, attributes in span.events for name in attributes}
    used |= got.metrics().keys()
    used |= {name for points in got.metrics().values() for *_, attributes in points for name in attributes}
    assert used <= known, used - known


async def test_a_run_with_a_tool_in_the_trace_of_its_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with asyncio.timeout(LIMIT_S), collector(monkeypatch, OTEL_RESOURCE_ATTRIBUTES="team=a") as got:
        async with serving(tmp_path, Scripted([WRITE, COUNTED]), headers={"traceparent": PARENT}) as served:
            events = await served.chat("Hello sesame")
        run, first, tool, last = got.spans()
        assert names_of([run, first, tool, last]) == [
            "invoke_agent",
            "chat scripted",
            "execute_tool write_file",
            "chat scripted",
        ]
        assert {span.trace for span in got.spans()} == {TRACE} and run.parent == SPAN
        assert [span.parent for span in (first, tool, last)] == [run.id] * 3
        assert run.attributes[names.OUTCOME.name] == "answered" and not run.failed
        assert run.attributes[names.CONVERSATION.name] == events[0]["session"]
        call = next(event["call"] for event in events if event["type"] == "tool.started")
        assert (tool.attributes[names.TOOL_CALL.name], tool.failed) == (call, False)
        assert last.attributes["gen_ai.usage.input_tokens"] == 20
        assert last.attributes["gen_ai.usage.output_tokens"] == 3
        assert last.attributes["gen_ai.usage.cache_read.input_tokens"] == 4
        assert last.attributes["gen_ai.response.finish_reasons"] == ["stop"]
        assert 0 <= last.attributes["gen_ai.response.time_to_first_chunk"] <= last.seconds
        assert names.INPUT_TOKENS.name not in first.attributes, "the model did not say"
        metrics = got.metrics()
        assert metrics.keys() == {row.name for row in TABLE if row.kind == "metric"} - {names.MCP_DURATION.name}
        assert sum(value for value, *_ in metrics[names.CHAT_INPUT.name]) == 20
        assert sum(count for _, count, _ in metrics[names.CHAT_DURATION.name]) == 2
        [(seconds, count, attributes)] = metrics[names.TOOL_DURATION.name]
        assert (count, attributes[names.TOOL_NAME.name]) == (1, "write_file") and seconds >= 0
        about = got.resource()
        assert (about["service.name"], about["team"]) == ("dragoman", "a")
        assert b"sesame" not in got.raw, "content stays here"
        check_table(got)


async def test_a_retry_and_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    busy, gone = answer('{"error": {"message": "Slow down."}}', 503), answer("{}", 404)
    async with (
        asyncio.timeout(LIMIT_S),
        collector(monkeypatch) as got,
        upstream(busy, WHOLE, gone, chats=True) as model,
    ):
        lines = ["summarise_at = 1", "[endpoints.local]", f'url = "{model.base_url}"', 'model = "m"', "window = 8192"]
        (tmp_path / "dragoman.toml").write_text("\n".join([*lines, 'tool_calls = "fenced"']))
        async with serving(tmp_path, None) as served:
            assert (await served.chat())[-1]["type"] == "run.finished"
            assert (await served.chat())[-1]["type"] == "run.failed"
        run, good, failed_run, bad = got.spans()
        [(name, retry)] = [event for event in good.events if event[1][names.CODE.name] == "retry"]
        assert name == names.NOTICE.name and "Retrying in" in retry[names.MESSAGE.name]
        assert (good.attributes["server.address"], good.attributes["server.port"]) == ("127.0.0.1", model.port)
        assert good.attributes[names.PROVIDER.name] == "openai" and not good.failed
        assert bad.failed and bad.attributes["error.type"] == "model_not_found"
        assert failed_run.failed and failed_run.attributes["error.type"] == "model_not_found"
        assert run.trace != failed_run.trace, "no traceparent: each is a trace of its own"
        durations = got.metrics()[names.CHAT_DURATION.name]
        assert sorted(point[2].get("error.type", "") for point in durations) == ["", "model_not_found"]
        check_table(got)
    assert not any("traceparent" in asked.headers for asked in model.asked), "unless it is configured"


async def test_the_traceparent_goes_to_models_if_that_is_configured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with asyncio.timeout(LIMIT_S), collector(monkeypatch) as got, upstream(WHOLE, chats=True) as model:
        lines = ["[endpoints.local]", f'url = "{model.base_url}"', 'model = "m"', "window = 8192"]
        (tmp_path / "dragoman.toml").write_text("\n".join(["otel_propagate = true", *lines]))
        async with serving(tmp_path, None, headers={"traceparent": PARENT}) as served:
            await served.chat()
        request = got.span("chat m")
        assert model.asked[0].headers["traceparent"] == f"00-{TRACE}-{request.id}-01"


async def test_a_call_of_an_mcp_server_passes_its_trace_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names_called = ("meta", "fail", "broken")
    provider = Scripted([*(f"```mcp__t__{name}\n{{}}\n```" for name in names_called), "Done."])
    server = {"command": sys.executable, "args": [str(MCP)]}
    async with asyncio.timeout(LIMIT_S), collector(monkeypatch) as got:
        async with serving_mcp(tmp_path, provider, {"t": server}, tools=READS) as served:
            events = await served.chat()
            read = await served.client.get("/mcp/servers/t/resources/read", params={"uri": "note://one"})
            assert read.status_code == 200, read.text
        meta, failing = got.span("execute_tool mcp__t__meta"), got.span("execute_tool mcp__t__fail")
        [sent, *_] = [event["text"] for event in events if event["type"] == "tool.finished"]
        assert json.loads(sent)["traceparent"].rpartition("-")[0] == f"00-{meta.trace}-{meta.id}"
        about = {names.METHOD.name: "tools/call", names.TRANSPORT.name: "pipe", names.SERVER.name: "t"}
        assert {name: meta.attributes[name] for name in about} == about
        assert failing.failed and failing.attributes["error.type"] == "tool_error"
        broken = got.span("execute_tool mcp__t__broken").attributes
        assert (broken["error.type"], broken[names.STATUS_CODE.name]) == ("-32601", "-32601")
        assert got.span("resources/read").parent == "", "a person's request belongs to no run"
        assert len(got.spans()) == 1 + 4 + 3 + 1, "no span beside that of the call"
        series = got.metrics()[names.MCP_DURATION.name]
        seen = {(of.get(names.TOOL_NAME.name), of.get("error.type"), count) for _, count, of in series}
        calls = {("meta", None, 1), ("fail", "tool_error", 1), ("broken", "-32601", 1)}
        assert seen == calls | {(None, None, 1)}
        check_table(got)


async def test_waits_for_a_person_and_runs_that_are_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with asyncio.timeout(LIMIT_S), collector(monkeypatch) as got:
        provider = Scripted([WRITE, "Done.", WRITE])
        async with serving(tmp_path, provider, approval_admin="ask") as served:
            async with aclosing(served.turn(message="x")) as turn:
                asked = await until(turn, "approval.required")
                await decide(served, asked)
                await until(turn, "run.finished")
            async with aclosing(served.turn(message="x")) as turn:
                await until(turn, "approval.required")
        answered, left = [span for span in got.spans() if span.name == "invoke_agent"]
        steps = [(name, of.get(names.DECISION.name)) for name, of in answered.events if name != names.NOTICE.name]
        assert steps == [(names.ASKED.name, None), (names.RESOLVED.name, "approved")]
        assert left.attributes[names.OUTCOME.name] == "suspended"
        check_table(got)


async def decide(served: Served, asked: dict[str, Any]) -> str:
    """Approve the call that waits; return its run."""
    [waiting] = (await served.client.get("/approvals")).json()["approvals"]
    path = f"/runs/{waiting['run']}/approvals/{asked['call']}"
    assert (await served.client.post(path, json={"decision": "approve"})).status_code == 200
    return str(waiting["run"])


async def test_content_goes_out_on_request_only_and_redacted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    secret = "sk-" + "a1B2c3D4" * 6
    monkeypatch.setenv("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "span_only")
    provider = Scripted([f"```write_file\nnote.txt\n{secret}\n```", "All done."])
    async with asyncio.timeout(LIMIT_S), collector(monkeypatch) as got:
        async with serving(tmp_path, provider, model_key=secret) as served:
            await served.chat(f"Keep {secret} safe")
        last, tool = got.spans()[-1], got.span("execute_tool write_file")
        [said] = json.loads(last.attributes[names.OUTPUT.name])
        assert said["parts"] == [{"type": "text", "content": "All done."}] and said["finish_reason"] == "stop"
        roles = [message["role"] for message in json.loads(last.attributes[names.INPUT.name])]
        assert roles[0] == "system" and roles[-3:] == ["user", "assistant", "tool"]
        assert json.loads(tool.attributes[names.ARGUMENTS.name])["path"] == "note.txt"
        assert secret.encode() not in got.raw and b"Keep" in got.raw
        check_table(got)


async def test_labelled_content_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "dragoman.toml").write_text('[[labels]]\nlabel = "secret"\n')
    async with (
        asyncio.timeout(LIMIT_S),
        collector(monkeypatch, OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT="true") as got,
    ):
        async with serving(tmp_path, Scripted(["Words."])) as served:
            await served.chat("Hello sesame")
        assert got.spans() and b"sesame" not in got.raw


@pytest.mark.parametrize("given", ["x", PARENT.upper().replace("00-", "FF-", 1), f"00-{'0' * 32}-{SPAN}-01"])
async def test_a_malformed_traceparent_begins_a_new_trace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str
) -> None:
    async with asyncio.timeout(LIMIT_S), collector(monkeypatch) as got:
        async with serving(tmp_path, Scripted(["Words."]), headers={"traceparent": given}) as served:
            assert (await served.chat())[-1]["type"] == "run.finished"
        assert got.span("invoke_agent").parent == ""


async def test_a_collector_that_is_gone_is_reported_once_and_stops_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    exporting = logging.getLogger("app.telemetry.exporting")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "0.2")
    monkeypatch.setenv("OTEL_METRICS_EXPORTER", "none")
    async with asyncio.timeout(LIMIT_S), collector(monkeypatch, status=HANG) as got:
        exports = Exports(os.environ, None, propagates=False)
        with caplog.at_level(logging.WARNING, exporting.name):
            for _ in range(2):
                run = ObservedRun(id="r", session="s", principal="p", model="m", created=0.0)
                exports.telemetry.observe_event(run, RunFailed("x", "y", retryable=False))
                await asyncio.to_thread(exports.spans.force_flush)
        [record] = [one for one in caplog.records if one.name == exporting.name]
        assert "Traces are not exported" in record.getMessage() and "OTEL_EXPORTER_OTLP_ENDPOINT" in record.getMessage()
        assert not [one for one in caplog.records if one.name.startswith("opentelemetry")]
        await exports.close(0.1)
        assert len(got.receiver.requests) >= 2
    assert logging.getLogger("opentelemetry").propagate


def test_an_outage_is_reported_at_its_begin_and_at_its_end(caplog: pytest.LogCaptureFixture) -> None:
    log = SdkLog()
    for ok in (True, False, False, True, True, False):
        log.exported("Traces", ok=ok)
    for _ in range(2):
        log.emit(logging.LogRecord("opentelemetry.sdk", logging.WARNING, "", 1, "Queue full.", (), None))
    words = [record.getMessage().partition(":")[0] for record in caplog.records]
    not_now = "Traces are not exported"
    assert words == [not_now, "Traces are exported again.", not_now, "OpenTelemetry"]


BLOCKED = """
import asyncio, sys
sys.modules["opentelemetry.sdk"] = None
from app.config.settings import load_settings
from app.redaction.redactor import Redactor
from app.telemetry.opening import opened_telemetry
async def main():
    settings = load_settings({}, {"DRAGOMAN_OTEL": sys.argv[1]} if sys.argv[1:] else {}).settings
    environ = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"}
    async with opened_telemetry(settings, Redactor(), environ) as traced:
        print(traced.operations)
asyncio.run(main())
"""


@pytest.mark.parametrize(
    ("given", "shown"), [(["true"], "pip install 'dragoman[otel]'"), ([], "None"), (["0"], "None")]
)
def test_without_the_extra(tmp_path: Path, given: list[str], shown: str) -> None:
    command = [sys.executable, "-c", BLOCKED, *given]
    done = subprocess.run(command, cwd=tmp_path, env=child_environ(tmp_path), capture_output=True, text=True)
    assert shown in (done.stderr if given == ["true"] else done.stdout), done
    assert (done.returncode == 0) is (given != ["true"])


def child_environ(folder: Path) -> dict[str, str]:
    return {"HOME": str(folder), "PYTHONPATH": str(ROOT), "PATH": os.environ["PATH"]}


def test_nothing_of_it_is_imported_while_it_is_off(tmp_path: Path) -> None:
    program = "import sys, routes.server; print([one for one in sys.modules if one.startswith('opentelemetry')])"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, env=child_environ(tmp_path), capture_output=True, text=True
    )
    assert done.stdout == "[]\n", done


async def test_bad_variables_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    environ = {"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc", "OTEL_EXPORTER_OTLP_ENDPOINT": "collector:4317"}
    found = " ".join(problems(environ))
    assert "'grpc', and only http/protobuf is supported" in found and "is no http or https URL" in found
    with pytest.raises(SettingsError, match="otel: OTEL_EXPORTER_OTLP_PROTOCOL"):
        async with opened_telemetry(settings_in(tmp_path, otel="true"), Redactor(), environ):
            pass
    async with opened_telemetry(settings_in(tmp_path), Redactor(), environ) as traced:
        assert traced.operations is None, "for other programs, perhaps: a warning"
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "0")
    with pytest.raises(SettingsError, match="cannot be used: interval value"):
        async with opened_telemetry(settings_in(tmp_path, otel="true"), Redactor(), {}):
            pass
    assert not logging.getLogger("opentelemetry").handlers
    async with opened_telemetry(
        settings_in(tmp_path, otel="true"), Redactor(), {"OTEL_SDK_DISABLED": "true"}
    ) as traced:
        assert traced.operations is None


def test_each_name_has_one_row() -> None:
    assert len({row.name for row in TABLE}) == len(TABLE)
    assert all(row.name.startswith("dragoman.") == (row.source == OWN) for row in TABLE)


async def test_helpers_are_in_the_trace_of_the_call_that_delegates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    provider = Scripted(['```delegate\n{"task": "Look."}\n```', "Looked.", "Done."])
    async with asyncio.timeout(LIMIT_S), collector(monkeypatch) as got:
        async with serving(tmp_path, provider, helpers="true", approval_admin="auto") as served:
            events = await served.chat()
        assert "tool.finished" in [event["type"] for event in events], events
        call = got.span("execute_tool delegate")
        mine, helper = [span for span in got.spans() if span.name == "invoke_agent"]
        assert (helper.parent, helper.trace) == (call.id, mine.trace)


async def test_a_lane_honours_the_traceparent_and_reads_side_by_side(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "note.txt").write_text("first")
    provider = Scripted([f"{READ}\n{READ.replace('note.txt', './note.txt')}", "Done."])
    async with asyncio.timeout(LIMIT_S), collector(monkeypatch) as got:
        async with serving(tmp_path, provider, headers={"traceparent": PARENT}) as served:
            body = {"model": AGENT, "messages": [{"role": "user", "content": "Read."}]}
            assert (await served.client.post("/v1/chat/completions", json=body)).status_code == 200
        assert got.span("invoke_agent").parent == SPAN
        assert names_of(got.spans()).count("execute_tool read_file") == 2


async def test_a_run_that_goes_on_stays_in_its_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with asyncio.timeout(LIMIT_S), collector(monkeypatch) as got:
        async with serving(
            tmp_path, Scripted([WRITE]), headers={"traceparent": PARENT}, approval_admin="ask"
        ) as served:
            async with aclosing(served.turn(message="x")) as turn:
                asked = await until(turn, "approval.required")
        async with serving(tmp_path, Scripted(["Done."]), approval_admin="ask") as served:
            await served.services.runs.ended(await decide(served, asked))
        before, after = [span for span in got.spans() if span.name == "invoke_agent"]
        assert [one.attributes[names.OUTCOME.name] for one in (before, after)] == ["suspended", "answered"]
        assert {before.trace, after.trace} == {TRACE} and {before.parent, after.parent} == {SPAN}
        assert got.span("execute_tool write_file").parent == after.id
