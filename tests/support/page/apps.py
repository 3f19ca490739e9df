"""Conversations with apps of MCP servers, as the page gets them: the events, files and answers that a test gives."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from playwright.async_api import BrowserContext, Route

from tests.support.page.browser import Locator, Page, home
from tests.support.server.serving import Served

# The app's half of the protocol, as its SDK speaks it. `host` is the answer to `ui/initialize`.
CLIENT = """<!doctype html><meta charset=utf-8><body><script>
const waits = new Map(), heard = [];
const send = (message) => parent.postMessage({ jsonrpc: "2.0", ...message }, "*");
const tell = (method, params = {}) => send({ method, params });
let last = 0;
const ask = (method, params = {}) => new Promise((resolve) => {
  waits.set(++last, resolve);
  send({ id: last, method, params });
});
addEventListener("message", ({ source, data }) => {
  if (source !== parent || data?.jsonrpc !== "2.0") return;
  if (data.method) heard.push(data);
  if (data.method === "ui/resource-teardown")
    Promise.resolve(window.ending?.()).then(() => send({ id: data.id, result: {} }));
  waits.get(data.id)?.(data.error ? data.error.code : data.result);
  waits.delete(data.id);
});
const begin = (modes = ["inline", "fullscreen"]) => ask("ui/initialize", {
  appInfo: { name: "App", version: "1" }, appCapabilities: { availableDisplayModes: modes },
  protocolVersion: "2026-01-26" }).then((host) => (tell("ui/notifications/initialized"), host));
const note = (id, value) => document.body.append(
  Object.assign(document.createElement("pre"), { id, textContent: JSON.stringify(value) }));
</script>"""
TOOL = "mcp__shop__show"


@dataclass
class AppServer:
    """What a server answers to apps, and what was asked of it."""

    asked: list[dict[str, Any]] = field(default_factory=list)
    state: dict[str, Any] = field(default_factory=dict)
    answers: dict[str, Any] = field(default_factory=dict)  # by method; a number is the status of a refusal
    origin: str = ""

    def of(self, method: str) -> list[dict[str, Any]]:
        return [one["params"] for one in self.asked if one["method"] == method]

    async def answer(self, route: Route) -> None:
        if route.request.method == "GET":
            tool = {"name": "show", "inputSchema": {"type": "object"}}
            await route.fulfill(json={"state": self.state, "tool": tool, "origin": self.origin})
            return
        body: dict[str, Any] = route.request.post_data_json or {}
        self.asked.append({"path": route.request.url.rpartition("/runs/")[2], **body})
        given = self.answers.get(body["method"], {})
        if isinstance(given, int):
            await route.fulfill(status=given, json={"error": {"code": "forbidden", "message": "It may not."}})
        else:
            await route.fulfill(json={"result": given})


def app_events(run: str, session: str, servers: Sequence[str], **more: Any) -> list[dict[str, Any]]:
    """A run whose calls have an app each, of these servers: `file0` and so on."""
    found: list[dict[str, Any]] = [{"type": "run.started", "run": run, "session": session, "model": "m", "tools": []}]
    found[0]["limits"] = {}
    for at in range(len(servers)):
        call = {"call": f"call_{at}", "name": TOOL}
        found.append({"type": "tool.started", **call, "arguments": {"item": at}, "dialect": "native"})
        found.append({"type": "tool.finished", **call, "ok": True, "text": f"Result {at}.", "duration_s": 0.1})
        csp: dict[str, list[str]] = {
            "connectDomains": [],
            "resourceDomains": [],
            "frameDomains": [],
            "baseUriDomains": [],
        }
        shown = {"server": servers[at], "uri": "ui://shop/x", "file": f"file{at}", "result": "result", "csp": csp}
        found.append({"type": "tool.app", **call, **shown, "permissions": [], "border": None, **more})
    found.append({"type": "text.delta", "text": "Shown."})
    found.append({"type": "run.finished", "reason": "answered", "text": "Shown.", "rounds": 1, "calls": len(servers)})
    found[-1]["usage"] = {}
    return [{"seq": seq, **event} for seq, event in enumerate(found, 1)]


async def serve_apps(
    served: Served,
    context: BrowserContext,
    pages: Sequence[str],
    server: AppServer,
    servers: Sequence[str] = (),
    **more: Any,
) -> str:
    """Give a browser a conversation with these apps, whose server answers for all of them. Return its address."""
    session = (await served.chat("Show me."))[0]["session"]
    log = (await served.client.get(f"/sessions/{session}/log")).json()
    run = log["runs"][-1]
    run["events"] = app_events(run["run"], session, servers or ["shop"] * len(pages), **more)
    result = {"content": [{"type": "text", "text": "Result."}], "structuredContent": {"price": 3}}
    files = {"result": json.dumps(result), **{f"file{at}": html for at, html in enumerate(pages)}}

    async def give_log(route: Route) -> None:
        await route.fulfill(json=log)

    async def give_events(route: Route) -> None:
        frames = (f"id: {one['seq']}\nevent: {one['type']}\ndata: {json.dumps(one)}\n\n" for one in run["events"])
        await route.fulfill(body="".join(frames), content_type="text/event-stream")

    async def give_file(route: Route) -> None:
        await route.fulfill(body=files[route.request.url.rpartition("/")[2]], content_type="text/plain")

    await context.route(f"**/sessions/{session}/log*", give_log)
    await context.route(f"**/sessions/{session}/files/*", give_file)
    await context.route(f"**/runs/{run['run']}/events*", give_events)
    await context.route(f"**/runs/{run['run']}/calls/*/app", server.answer)
    return f"{home(served)}/#{session}"


def apps(page: Page) -> Locator:
    return page.locator(".call-app")
