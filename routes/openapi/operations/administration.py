"""Operations on tools, models, MCP servers and the server itself."""

from __future__ import annotations

from app.mcp.sign_ins import CALLBACK
from routes.access.authentication import HELLO, OPENAPI
from routes.access.token_auth import PROOF
from routes.access.tokens import TokenRequest
from routes.http.administration.endpoints import EndpointRequest
from routes.http.administration.settings import SettingsRequest
from routes.http.mcp.offers import PromptRequest
from routes.http.mcp.servers import ServerRequest
from routes.http.people.people import PersonRequest
from routes.http.people.prompts import PreferencesRequest, StoredPromptRequest
from routes.http.people.sign_ins import SignInRequest
from routes.http.profiles import ProfileRequest
from routes.http.project import FileDecisionRequest
from routes.http.serving.handlers import AddRequest, ServeRequest
from routes.openapi.operation import Operation, Query, rows
from routes.protocol.requests import PauseRequest

DEFINED = "/mcp/servers/{name:path}"
AFTER_EVENT = Query("after", "the `id:` of the last event, with `session`")
OF_TOOLS = rows(
    "Tools and profiles",
    Operation("GET /tools", "The tools that you may use", {"tools": ["@Tool"]}),
    Operation(
        "GET /options",
        "The options that a run of yours would have",
        {"options": ["object"], "profiles": ["any"], "tools": ["text"]},
        errors=(403, 404),
        query=(Query("profile", "with this profile"), Query("session", "in this session")),
    ),
    Operation("GET /profiles", "The profiles that you may name", {"profiles": ["@Profile"], "bound_to": "text?"}),
    Operation("GET /profiles/{profile}", "A profile", "@Profile", rights="owner"),
    Operation(
        "PUT /profiles/{profile}",
        "Add a profile, or replace it whole",
        "@Profile",
        ProfileRequest,
        ok=(200, 201),
        errors=(403, 409),
        example={"max_rounds": 5},
    ),
    Operation("DELETE /profiles/{profile}", "Delete a profile", rights="owner", ok=(204,), errors=(403, 409)),
    Operation("GET /project", "The instructions in your workspace", {"files": ["object"]}),
    Operation(
        "POST /project",
        "Accept or decline the text of a file",
        "object",
        FileDecisionRequest,
        "not guests",
        errors=(403, 404, 409),
        example={"path": "AGENTS.md", "digest": "0" * 64, "decision": "accept"},
    ),
)
OF_MODELS = rows(
    "Models",
    Operation(
        "GET /endpoints", "Model endpoints", {"default": "text?", "aliases": "object", "endpoints": ["@Endpoint"]}
    ),
    Operation(
        "POST /endpoints",
        "Add an endpoint, or only test it",
        "@Endpoint",
        EndpointRequest,
        "admin",
        ok=(200, 201),
        errors=(409,),
        example={"name": "local", "url": "http://127.0.0.1:8080/v1"},
    ),
    Operation("DELETE /endpoints/{endpoint}", "Remove an endpoint", rights="admin", ok=(204,), errors=(409,)),
    Operation("GET /served-models", "Model files of this machine", "@ServedModels", rights="admin"),
    Operation(
        "POST /served-models",
        "Add a model file",
        "object",
        AddRequest,
        "admin",
        ok=(200, 201),
        errors=(409,),
        example={"file": "small.gguf"},
    ),
    Operation("GET /served-models/{name}", "A model file", "object", rights="admin"),
    Operation("DELETE /served-models/{name}", "Forget a model file", rights="admin", ok=(204,), errors=(409,)),
    Operation(
        "POST /served-models/{name}/serve",
        "Make an endpoint of a model file",
        "object",
        ServeRequest,
        "admin",
        ok=(200, 202),
        errors=(409,),
        body_required=False,
        example={"at_start": True},
    ),
    Operation("POST /served-models/{name}/stop", "Stop serving it", "object", rights="admin", errors=(409,)),
)
OF_MCP = rows(
    "MCP servers",
    Operation("GET /mcp/servers", "MCP servers", {"servers": ["@McpServer"], "problem": "text?"}, rights="admin"),
    Operation(
        "POST /mcp/servers",
        "Add a server",
        "@McpServer",
        ServerRequest,
        "admin",
        ok=(201,),
        errors=(409,),
        example={"name": "docs", "url": "https://mcp.example.com/mcp"},
    ),
    Operation(f"GET {DEFINED}", "An MCP server", "@McpServer", rights="admin"),
    Operation(f"DELETE {DEFINED}", "Remove a server", rights="admin", ok=(204,), errors=(409,)),
    Operation(
        f"POST {DEFINED}/{{action}}",
        "enable, disable, reconnect, approve, trust or distrust",
        "@McpServer",
        {"tool?": "text", "digest?": "text", "role?": "text", "risk?": "text"},
        "admin",
        errors=(409,),
        body_required=False,
        example={"tool": "search"},
    ),
    Operation(f"GET {DEFINED}/logs", "The last lines of a server", {"lines": ["text"]}, rights="admin"),
    Operation(
        f"GET {DEFINED}/resources",
        "The resources of a server",
        {"resources": ["object"], "templates": ["object"], "notes": ["text"]},
        rights="owner",
        errors=(502,),
    ),
    Operation(
        f"GET {DEFINED}/resources/read",
        "The contents of a resource",
        {"contents": ["object"]},
        rights="owner",
        errors=(422, 502),
        query=(Query("uri", "the URI of the resource", required=True),),
    ),
    Operation(
        f"GET {DEFINED}/prompts",
        "The prompts of a server",
        {"prompts": ["object"]},
        rights="owner",
        errors=(502,),
    ),
    Operation(
        f"POST {DEFINED}/prompts/{{prompt:path}}",
        "The messages of a prompt",
        {"messages": ["object"], "text": "text"},
        PromptRequest,
        "owner",
        errors=(502,),
        body_required=False,
        example={"arguments": {"name": "Ann"}},
    ),
    Operation(
        f"GET {CALLBACK}",
        "The redirect target of an OAuth sign-in",
        rights="open",
        media=("text/plain",),
        errors=(400, 403),
        query=(Query("state", "the sign-in"), Query("code", "its code"), Query("error", "why there is none")),
    ),
)
OF_SERVER = rows(
    "Server",
    Operation("GET /", "The page for browsers, a summary for others", media=("text/html", "text/plain")),
    Operation(
        "GET /page/{path:path}",
        "A file of the page",
        rights="open",
        media=("application/octet-stream",),
        ok=(200, 304),
    ),
    Operation(
        "GET /events",
        "Everything that the page shows, on one connection",
        stream="page",
        errors=(400, 404),
        query=(Query("session", "whose runs are streamed"), AFTER_EVENT),
        resumes=True,
    ),
    Operation(
        "GET /usage",
        "Budgets and usage",
        "@Budgets",
        errors=(400, 403),
        query=(
            Query("month", "such as 2026-11"),
            Query("principal", "for admins: another one, `*` for all"),
        ),
    ),
    Operation(
        "GET /audit",
        "Every decision, newest first",
        {"audit": ["@Decision"]},
        rights="admin",
        query=(
            Query("before", "the number of the last row of the page before", "integer"),
            Query("limit", "at most so many rows", "integer"),
            Query("principal", "of this person"),
            Query("action", "that begins so, as `bash`"),
            Query("decision", "with this decision"),
            Query("calls", "1: with the arguments of the calls, shortened"),
        ),
    ),
    Operation("GET /audit/{number}", "A decision, with all arguments of its call", "@Decision", rights="admin"),
    Operation(
        "POST /pause",
        "Pause the server",
        "@Paused",
        PauseRequest,
        "admin",
        body_required=False,
        errors=(500,),
        example={"cancel": False},
    ),
    Operation("POST /resume", "Go on after a pause", "@Paused", rights="admin"),
    Operation("GET /tokens", "Access tokens", {"tokens": ["@Token"]}, rights="admin"),
    Operation(
        "POST /tokens",
        "Make a token; only this answer has it",
        {"token": "text", "name": "text"},
        TokenRequest,
        rights="admin",
        ok=(201,),
        errors=(409,),
        example={"name": "ci", "role": "user"},
    ),
    Operation("DELETE /tokens/{name}", "Revoke a token", rights="admin", ok=(204,)),
    Operation("GET /people", "Who may use the server, with what they use", {"people": ["@Person"]}, rights="admin"),
    Operation(
        "PATCH /people/{name}",
        "Give another role, or disable or enable",
        "@Person",
        PersonRequest,
        "admin",
        errors=(404, 409),
        example={"role": "user"},
        partial=True,
    ),
    Operation(
        "GET /sign-ins",
        "Browsers that stay signed in",
        {"sign_ins": ["@SignIn"], "days": "integer"},
        errors=(403,),
        query=(Query("principal", "of this person, for admins"),),
    ),
    Operation(
        "POST /sign-ins",
        "Keep this browser signed in; only this answer has the key and the cookie",
        {"id": "text", "key": "text", "expires": "number"},
        SignInRequest,
        ok=(201,),
        errors=(403, 409),
        body_required=False,
        example={"days": 30},
    ),
    Operation(
        "DELETE /sign-ins",
        "End all of your lasting sign-ins",
        ok=(204,),
        errors=(403,),
        query=(Query("principal", "of this person, for admins"),),
    ),
    Operation("DELETE /sign-ins/{sign_in}", "End a lasting sign-in", rights="owner", ok=(204,)),
    Operation("GET /prompts", "Your stored prompts", {"prompts": ["@StoredPrompt"]}),
    Operation("GET /prompts/{prompt}", "A stored prompt", "@StoredPrompt", rights="owner"),
    Operation(
        "PUT /prompts/{prompt}",
        "Store a prompt, or replace it whole",
        "@StoredPrompt",
        StoredPromptRequest,
        ok=(200, 201),
        errors=(409,),
        example={"text": "Review {{file}}."},
    ),
    Operation("DELETE /prompts/{prompt}", "Delete a stored prompt", rights="owner", ok=(204,)),
    Operation("GET /preferences", "The defaults of your new conversations", "@Preferences"),
    Operation(
        "PUT /preferences",
        "Set the defaults of your new conversations",
        "@Preferences",
        PreferencesRequest,
        errors=(403, 404),
        example={"options": {"temperature": 0.5}},
    ),
    Operation("GET /settings", "Settings that may change", {"settings": ["@Setting"]}, rights="admin"),
    Operation(
        "PATCH /settings",
        "Change settings",
        {"settings": ["@Setting"]},
        SettingsRequest,
        "admin",
        example={"changes": {"max_rounds": 30}},
    ),
    Operation(
        "GET /hooks",
        "The hooks",
        {"hooks": ["object"], "failed": "integer", "dropped": "integer"},
        rights="admin",
    ),
    Operation("GET /rules", "The operator's rules", {"rules": ["object"]}, rights="admin"),
    Operation(
        f"GET {PROOF}",
        "Proof that this server knows a token",
        {"proof": "text"},
        rights="open",
        errors=(404, 422),
        query=(Query("token", "its id", required=True), Query("nonce", "a number of the client", required=True)),
    ),
    Operation("GET /livez", "The process lives", {"live": "boolean"}, rights="open"),
    Operation(
        "GET /readyz",
        "The server takes runs, or why not",
        {"ready": "boolean"},
        rights="open",
        errors=(503,),
    ),
    Operation("GET /metrics", "Metrics for Prometheus", rights="admin", media=("text/plain",)),
    Operation(f"GET {OPENAPI}", "This document", "object", rights="open"),
    Operation(f"GET {HELLO}", "204 where there is a server", rights="open", ok=(204,)),
)
OPERATIONS = (*OF_TOOLS, *OF_MODELS, *OF_MCP, *OF_SERVER)
