"""The access table: what the test of all routes sends to each, and what it gets. Who may use a route is in its row."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from routes.protocol.route import Rights, Route
from tests.support.documented.routes import ROUTES


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """What does not follow from the row of a route."""

    body: object = None
    names_hers: bool = False  # the body names something of ann's
    ok: int | None = None  # what ann gets, or whoever may
    admins: int | None = None  # what admins get after her, where they see what is hers, too
    shows: str | None = None  # what of ann's only ann sees there (in a stream's first event)


TRIED = {
    "GET /decide/{token}": Tried(ok=404),  # there is no such link
    "POST /decide": Tried(ok=422),  # no form
    "GET /proof": Tried(ok=422),
    "GET /events": Tried(shows="job"),
    "GET /profiles": Tried(shows="profile"),
    "GET /sessions": Tried(shows="session"),
    "POST /sessions/{session}/shares": Tried(body={"attachments": True}, ok=409),  # none of its turns has ended
    "GET /shares": Tried(shows="share"),
    "POST /shares/{share}": Tried(ok=409),
    "DELETE /shares/{share}": Tried(admins=404),
    "DELETE /permissions/{permission}": Tried(admins=404),
    "GET /folders": Tried(shows="folder"),
    "PATCH /folders/{folder}": Tried(body={"name": "Trips"}),
    "GET /jobs": Tried(shows="job"),
    "GET /approvals": Tried(shows="call"),
    "POST /sessions/{session}/fork": Tried(body={"before": "{run}"}),
    "POST /sessions/import": Tried(ok=400),  # of no format
    "POST /sessions/{session}/compact": Tried(ok=409),  # a run of hers is at work
    "PATCH /sessions/{session}": Tried(body={"disabled_tools": []}),
    "GET /sessions/{session}/workspace/{path:path}": Tried(ok=404),  # there is no such file
    "POST /workspace/changes/{change}/undo": Tried(ok=404),  # hers are undone in tests of their own
    "GET /workspace/files/{path:path}": Tried(ok=404),  # there is no such file
    "PUT /workspace/files/{path:path}": Tried(ok=201),
    "PUT /documents/{document}": Tried(body={"version": 1, "text": "x"}),
    "POST /documents/{document}/suggestions/{number}": Tried(body={"decision": "accept"}, ok=404),
    "GET /memory": Tried(shows="memory"),
    "DELETE /memory": Tried(ok=400),
    "PATCH /memory/{memory}": Tried(body={"text": "Likes tea", "kind": "preference"}),
    "POST /runs/{run}/messages": Tried(body={"message": "x"}),
    "POST /runs/{run}/approvals/{call}": Tried(body={"decision": "approve"}),
    "POST /runs/{run}/calls/{call}/input": Tried(body={"text": "x"}, ok=409),
    "POST /runs/{run}/calls/{call}/terminal": Tried(body={"columns": 80, "rows": 24}, ok=409),
    "POST /runs/{run}/calls/{call}/app": Tried(body={"method": "state"}, ok=404),  # it shows none
    "GET /runs/{run}/calls/{call}/app": Tried(ok=404),
    "GET /runs/{run}/changes": Tried(admins=200),
    "POST /runs/{run}/undo": Tried(admins=200),
    "POST /runs/{run}/replay": Tried(ok=409),  # hers is under way
    "GET /runs/{run}/recording": Tried(ok=409),
    "GET /sessions/{session}/changes": Tried(ok=409),  # it works in the workspace
    "POST /sessions/{session}/take-over": Tried(body={"fingerprint": "x"}, ok=409),
    "POST /chat": Tried(body={"message": "x", "session": "{session}", "when_busy": "queue"}, names_hers=True),
    "GET /mcp/callback": Tried(ok=400),
    "GET /mcp": Tried(ok=400),  # no session
    "DELETE /mcp": Tried(ok=400),
    "POST /oidc/begin": Tried(ok=404),  # there is no provider
    "POST /oidc/finish": Tried(ok=404),
    "POST /oidc/backchannel-logout": Tried(ok=404),
    "POST /mcp/servers": Tried(body={"name": "new", "url": "http://127.0.0.1:9/"}),
    # What a server offers is for those who may use its tools: here for admins, and it cannot be reached.
    "GET /mcp/servers/{name:path}/resources": Tried(ok=404, admins=502),
    "GET /mcp/servers/{name:path}/resources/read": Tried(ok=404, admins=422),
    "GET /mcp/servers/{name:path}/prompts": Tried(ok=404, admins=502),
    "POST /mcp/servers/{name:path}/prompts/{prompt:path}": Tried(ok=404, admins=502),
    "POST /endpoints": Tried(body={"name": "new", "url": "http://127.0.0.1:9/"}, ok=201),
    "PATCH /settings": Tried(body={"changes": {"max_rounds": 20}}),
    "GET /schedules": Tried(shows="schedule"),
    "PATCH /schedules/{schedule}": Tried(body={"name": "x"}),
    "GET /triggers": Tried(shows="trigger"),
    "PATCH /triggers/{trigger}": Tried(body={"name": "x"}),
    "POST /triggers/{trigger}": Tried(ok=401),  # it is proven with the trigger's own secret
    "GET /webhooks": Tried(shows="webhook"),
    "PATCH /webhooks/{webhook}": Tried(body={"name": "x"}),
    "GET /push": Tried(shows="subscription"),
    "PATCH /push/{subscription}": Tried(body={"events": ["run.ended"]}),
    "POST /served-models": Tried(body={"file": "x.gguf"}, ok=422),  # no folder is allowed
    "GET /served-models/{name}": Tried(ok=404),
    "POST /served-models/{name}/serve": Tried(ok=404),
    "POST /served-models/{name}/stop": Tried(ok=404),
    "DELETE /served-models/{name}": Tried(ok=404),
    "GET /audit/{number}": Tried(ok=404),  # there are no so many
    "PATCH /people/{name}": Tried(body={"role": "user"}),
    "GET /sign-ins": Tried(shows="sign_in"),
    "GET /prompts": Tried(shows="prompt"),
    "POST /secrets": Tried(body={"name": "new", "value": "a-value-of-tests"}),
    "DELETE /secrets/{secret}": Tried(ok=404),
    "POST /tokens": Tried(body={"name": "new"}),
    "DELETE /tokens/{name}/members/{member}": Tried(ok=404),  # a test of its own has some
    "POST /member-codes": Tried(body={"bot": "nobody"}, ok=404),
    "POST /member-links": Tried(body={"code": "AAAA-AAAA", "member": "1"}, ok=403),  # a right of bots' tokens
    "DELETE /member-links/{bot}/{member}": Tried(ok=404),
    "GET /v1/models/{model:path}": Tried(ok=404),
    "GET /ui-message-stream/{chat:path}/stream": Tried(ok=204),
    "GET /v1/responses/{response}": Tried(ok=404),
    "DELETE /v1/responses/{response}": Tried(ok=404),
    "POST /v1/responses/{response}/cancel": Tried(ok=404),
    "GET /v1/responses/{response}/input_items": Tried(ok=404),
}
IN_ORDER = (  # each needs what those before have left
    "POST /runs/{run}/messages",
    "POST /runs/{run}/approvals/{call}",
    "GET /runs/{run}/events",
    "GET /runs/{run}/calls/{call}/output",
    "POST /runs/{run}/calls/{call}/cancel",
    "POST /runs/{run}/calls/{call}/input",
    "POST /runs/{run}/calls/{call}/terminal",
    "POST /runs/{run}/cancel",
    "GET /runs/{run}/changes",
    "POST /runs/{run}/undo",
    "POST /chat",
    "POST /jobs/{job}/cancel",
    "GET /jobs/{job}/events",
    "GET /jobs/{job}/output",
)
LAST = "DELETE /sessions/{session}"


@dataclass(frozen=True, slots=True)
class Row:
    """A route as the tests try it."""

    route: Route
    tried: Tried

    @property
    def rights(self) -> Rights:
        return "owner" if self.tried.names_hers else self.route.rights

    @property
    def ok(self) -> int:
        """What those who may get; without the body that it needs, 400."""
        if self.tried.ok is not None:
            return self.tried.ok
        lacks_body = self.route.body is not None and self.route.body.required and self.tried.body is None
        return 400 if lacks_body else self.route.answers[0]


def in_order() -> Iterator[Route]:
    """Reads, then changes, then deletions: of parts before those of what they belong to."""
    rest = [route for route in ROUTES if route.name not in (*IN_ORDER, LAST)]
    named = {route.name: route for route in ROUTES}
    yield from (route for route in rest if route.method == "GET")
    yield from (route for route in rest if route.method not in ("GET", "DELETE"))
    yield from (named[name] for name in IN_ORDER)
    yield from sorted((one for one in rest if one.method == "DELETE"), key=lambda one: -one.path.count("/"))
    yield named[LAST]


ROWS = {route.name: Row(route, TRIED.get(route.name, Tried())) for route in in_order()}
LOST = {
    "session": "ses_" + "0" * 20,
    "run": "run_" + "0" * 20,
    "call": "call_" + "0" * 20,
    "job": "job_" + "0" * 20,
    "sha256": "0" * 64,
    "grant": "grt_" + "0" * 20,
    "permission": "prm_" + "0" * 20,
    "document": "doc_" + "0" * 20,
    "change": "chg_" + "0" * 20,
    "profile": "no_such_profile",
    "prompt": "no_such_prompt",
    "sign_in": "sgn_" + "0" * 16,
    "folder": "fld_" + "0" * 20,
    "share": "shr_" + "0" * 20,
    "token": "dgm_" + "0" * 43,
    "number": "8" * 12,
    "memory": "mem_" + "0" * 20,
    "webhook": "whk_" + "0" * 20,
    "schedule": "sch_" + "0" * 20,
    "trigger": "trg_" + "0" * 20,
    "delivery": "msg_" + "0" * 32,
    "subscription": "psh_" + "0" * 20,
    "name": "nobody",
    "bot": "nobody",
    "member": "nobody",
    "action": "reconnect",
    "endpoint": "nowhere",
    "secret": "nowhere",
    "path": "icon.svg",
}
OWN_HEADERS = {  # of routes that end so, which say themselves what a browser may do
    "/decide": {"Content-Security-Policy", "Referrer-Policy"},
    "/decide/{token}": {"Content-Security-Policy", "Referrer-Policy"},
    "/events": {"Cache-Control"},
    "/chat": {"Cache-Control"},
    "/examination": {"Cache-Control"},
    "/{sha256}": {"Content-Security-Policy"},
    "/export": {"Content-Security-Policy"},
    "/file": {"Content-Security-Policy"},
    "/archive": {"Content-Security-Policy"},
    "/{path:path}": {"Content-Security-Policy", "Cache-Control"},
}
