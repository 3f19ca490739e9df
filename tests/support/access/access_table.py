"""The access table: a row for each route, which says who gets what from it."""

from __future__ import annotations

from dataclasses import dataclass

from routes.lanes.catalogue import LANES


@dataclass(frozen=True, slots=True)
class Open:
    """For probes, which have no token."""

    ok: int = 200


@dataclass(frozen=True, slots=True)
class Own:
    """Whoever has a token gets their own; `shows` is what of ann's only ann sees there (in a stream's first event)."""

    ok: int = 200
    shows: str | None = None
    stream: bool = False


@dataclass(frozen=True, slots=True)
class Thing:
    """Something of ann's. `ok` is what she gets, in the order of the table."""

    body: object = None
    ok: int = 200


@dataclass(frozen=True, slots=True)
class Admins:
    body: object = None
    ok: int = 200


@dataclass(frozen=True, slots=True)
class ThingOrAdmins:
    """Something of ann's that admins see, too; `again` is what they get after her, where that is something else."""

    body: object = None
    ok: int = 200
    again: int | None = None


@dataclass(frozen=True, slots=True)
class OfServer:
    """What an MCP server offers to those who may use its tools: here to admins. `ok`: it cannot be reached."""

    ok: int = 502


@dataclass(frozen=True, slots=True)
class NoGuests:
    """Whoever has a token and is no guest; `ok` is the answer without a body."""

    ok: int = 400


@dataclass(frozen=True, slots=True)
class OfLane:
    """A route of another API, whose errors are in its format, too. `ok` is the answer without a body or a right id."""

    ok: int = 400


Row = Open | Own | Thing | ThingOrAdmins | Admins | OfServer | NoGuests | OfLane
ROWS: dict[str, Row] = {
    **{f"GET {path}": Open() for path in ("/livez", "/readyz", "/openapi.json")},
    "GET /metrics": Admins(),
    "GET /proof": Open(422),
    "GET /": Own(),
    "GET /page/{path:path}": Open(),
    "GET /events": Own(shows="job", stream=True),
    "GET /tools": Own(),
    "GET /options": Own(),
    "GET /profiles": Own(shows="profile"),
    "GET /profiles/{profile}": Thing(),
    "PUT /profiles/{profile}": Own(400),  # adds one's own
    "DELETE /profiles/{profile}": Thing(ok=204),
    "GET /usage": Own(),
    "GET /sessions": Own(shows="session"),
    "POST /sessions/{session}/shares": Thing({"attachments": True}, 409),  # none of its turns has ended
    "GET /shares": Own(shows="share"),
    "POST /shares/{share}": Thing(ok=409),
    "GET /shared/{token}": Open(),
    "GET /shared/{token}/files/{sha256}": Open(),
    "GET /folders": Own(shows="folder"),
    "POST /folders": Own(400),
    "PATCH /folders/{folder}": Thing({"name": "Trips"}),
    "DELETE /folders/{folder}": Thing(ok=204),
    "DELETE /shares/{share}": ThingOrAdmins(ok=204, again=404),
    "GET /jobs": Own(shows="job"),
    "GET /approvals": Own(shows="call"),
    "GET /project": Own(),
    "POST /project": NoGuests(),
    "GET /sessions/{session}": Thing(),
    "GET /sessions/{session}/log": Thing(),
    "POST /sessions/{session}/fork": Thing({"before": "{run}"}, 201),
    "POST /sessions/{session}/compact": Thing(ok=409),  # a run of hers is at work
    "PATCH /sessions/{session}": Thing({"disabled_tools": []}),
    "GET /sessions/{session}/files/{sha256}": Thing(),
    "GET /sessions/{session}/files": Thing(),
    "GET /sessions/{session}/workspace/{path:path}": Thing(ok=404),  # there is no such file
    "GET /workspace": Own(),
    "GET /workspace/archive": Own(),
    "POST /workspace/folders": NoGuests(),
    "POST /workspace/moves": NoGuests(),
    "POST /workspace/changes/{change}/undo": Thing(ok=404),  # hers are undone in tests of their own
    "GET /workspace/files/{path:path}": Own(404),  # there is no such file
    "PUT /workspace/files/{path:path}": NoGuests(201),
    "DELETE /workspace/files/{path:path}": NoGuests(200),
    "GET /sessions/{session}/documents": Thing(),
    "GET /documents/{document}": Thing(),
    "PUT /documents/{document}": Thing({"version": 1, "text": "x"}),
    "GET /documents/{document}/versions": Thing(),
    "GET /documents/{document}/file": Thing(),
    "POST /documents/{document}/suggestions/{number}": Thing({"decision": "accept"}, 404),
    "GET /memory": Own(shows="memory"),
    "POST /memory": Own(400),
    "DELETE /memory": Own(400),
    "GET /memory/{memory}": Thing(),
    "PATCH /memory/{memory}": Thing({"text": "Likes tea", "kind": "preference"}),
    "DELETE /memory/{memory}": Thing(ok=204),
    "GET /sessions/{session}/grants": Thing(),
    "DELETE /sessions/{session}/grants/{grant}": Thing(),
    "DELETE /sessions/{session}/grants": Thing(),
    "GET /runs/{run}": Thing(),
    "POST /runs/{run}/messages": Thing({"message": "x"}, 202),
    "POST /runs/{run}/approvals/{call}": Thing({"decision": "approve"}),
    "GET /runs/{run}/approvals/{call}/preview": Thing(),
    "GET /runs/{run}/events": Thing(),
    "GET /runs/{run}/calls/{call}/output": Thing(),
    "POST /runs/{run}/calls/{call}/cancel": Thing(),
    "POST /runs/{run}/calls/{call}/input": Thing({"text": "x"}, 409),
    "POST /runs/{run}/calls/{call}/terminal": Thing({"columns": 80, "rows": 24}, 409),
    "POST /runs/{run}/cancel": Thing(),
    "GET /runs/{run}/changes": ThingOrAdmins(),
    "POST /runs/{run}/undo": ThingOrAdmins(),
    "POST /chat": Thing({"message": "x", "session": "{session}", "when_busy": "queue"}),
    "GET /jobs/{job}": Thing(),
    "POST /jobs/{job}/cancel": Thing(),
    "GET /jobs/{job}/events": Thing(),
    "GET /jobs/{job}/output": Thing(),
    "DELETE /sessions/{session}": Thing(ok=204),
    "GET /mcp/callback": Open(400),
    "GET /mcp/servers": Admins(),
    "POST /mcp/servers": Admins({"name": "new", "url": "http://127.0.0.1:9/"}, 201),
    "GET /mcp/servers/{name:path}": Admins(),
    "GET /mcp/servers/{name:path}/logs": Admins(),
    "GET /mcp/servers/{name:path}/resources": OfServer(),
    "GET /mcp/servers/{name:path}/resources/read": OfServer(422),
    "GET /mcp/servers/{name:path}/prompts": OfServer(),
    "POST /mcp/servers/{name:path}/prompts/{prompt:path}": OfServer(),
    "POST /mcp/servers/{name:path}/{action}": Admins(),
    "DELETE /mcp/servers/{name:path}": Admins(ok=204),
    "GET /endpoints": Own(),
    "POST /endpoints": Admins({"name": "new", "url": "http://127.0.0.1:9/"}, 201),
    "DELETE /endpoints/{endpoint}": Admins(ok=204),
    "GET /hooks": Admins(),
    "GET /rules": Admins(),
    "GET /settings": Admins(),
    "PATCH /settings": Admins({"changes": {"max_rounds": 20}}),
    "GET /schedules": Own(shows="schedule"),
    "POST /schedules": NoGuests(),
    "GET /schedules/{schedule}": Thing(),
    "PATCH /schedules/{schedule}": Thing({"name": "x"}),
    "POST /schedules/{schedule}/run": Thing(ok=202),
    "DELETE /schedules/{schedule}": Thing(ok=204),
    "GET /triggers": Own(shows="trigger"),
    "POST /triggers": NoGuests(),
    "GET /triggers/{trigger}": Thing(),
    "PATCH /triggers/{trigger}": Thing({"name": "x"}),
    "POST /triggers/{trigger}/secret": Thing(),
    "POST /triggers/{trigger}": Open(401),  # it is proven with the trigger's own secret
    "DELETE /triggers/{trigger}": Thing(ok=204),
    "GET /webhooks": Own(shows="webhook"),
    "POST /webhooks": NoGuests(),
    "GET /webhooks/{webhook}": Thing(),
    "PATCH /webhooks/{webhook}": Thing({"name": "x"}),
    "POST /webhooks/{webhook}/secret": Thing(),
    "POST /webhooks/{webhook}/test": Thing(),
    "GET /webhooks/{webhook}/deliveries": Thing(),
    "POST /webhooks/{webhook}/deliveries/{delivery}/retry": Thing(ok=202),
    "DELETE /webhooks/{webhook}": Thing(ok=204),
    "GET /push": Own(shows="subscription"),
    "POST /push": Own(400),
    "PATCH /push/{subscription}": Thing({"events": ["run.ended"]}),
    "POST /push/{subscription}/test": Thing(),
    "DELETE /push/{subscription}": Thing(ok=204),
    "GET /served-models": Admins(),
    "POST /served-models": Admins({"file": "x.gguf"}, 422),  # no folder is allowed
    "GET /served-models/{name}": Admins(ok=404),
    "POST /served-models/{name}/serve": Admins(ok=404),
    "POST /served-models/{name}/stop": Admins(ok=404),
    "DELETE /served-models/{name}": Admins(ok=404),
    "GET /audit": Admins(),
    "GET /audit/{number}": Admins(ok=404),  # there are no so many
    "GET /people": Admins(),
    "PATCH /people/{name}": Admins({"role": "user"}),
    "GET /sign-ins": Own(shows="sign_in"),
    "POST /sign-ins": Own(201),
    "DELETE /sign-ins/{sign_in}": Thing(ok=204),
    "DELETE /sign-ins": Own(204),
    "GET /prompts": Own(shows="prompt"),
    "GET /prompts/{prompt}": Thing(),
    "PUT /prompts/{prompt}": Own(400),  # adds one's own
    "DELETE /prompts/{prompt}": Thing(ok=204),
    "GET /preferences": Own(),
    "PUT /preferences": Own(400),
    "POST /pause": Admins(),
    "POST /resume": Admins(),
    "GET /tokens": Admins(),
    "POST /tokens": Admins({"name": "new"}, 201),
    "DELETE /tokens/{name}": Admins(ok=204),
    "GET /api/hello": Open(204),
    **{f"POST {lane.path}": OfLane() for lane in LANES},
    "POST /v1/messages/count_tokens": OfLane(),
    "GET /v1/models": OfLane(200),
    "GET /v1/models/{model:path}": OfLane(404),
    "GET /ui-message-stream/{chat:path}/stream": OfLane(204),
    "GET /v1/responses/{response}": OfLane(404),
    "DELETE /v1/responses/{response}": OfLane(404),
    "POST /v1/responses/{response}/cancel": OfLane(404),
    "GET /v1/responses/{response}/input_items": OfLane(404),
}
LOST = {
    "session": "ses_" + "0" * 20,
    "run": "run_" + "0" * 20,
    "call": "call_" + "0" * 20,
    "job": "job_" + "0" * 20,
    "sha256": "0" * 64,
    "grant": "grt_" + "0" * 20,
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
    "action": "reconnect",
    "endpoint": "nowhere",
    "path": "icon.svg",
}
OWN_HEADERS = {  # of routes that end so, which say themselves what a browser may do
    "/events": {"Cache-Control"},
    "/chat": {"Cache-Control"},
    "/{sha256}": {"Content-Security-Policy"},
    "/file": {"Content-Security-Policy"},
    "/archive": {"Content-Security-Policy"},
    "/{path:path}": {"Content-Security-Policy", "Cache-Control"},
}
