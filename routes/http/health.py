"""Health, the offered tools, and a greeting at the root."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from app.storage.changes import StoreFailed
from routes import page
from routes.access.authentication import HELLO
from routes.protocol.errors import ASCIIResponse
from routes.protocol.route import Route, tagged
from routes.services import current_principal, services_of

GREETING = """dragoman: a streaming agent server. Model: {model}.

Try:
  {example}

Routes:
{routes}
"""
OFFERED = ("name", "description", "risk", "role", "approval", "parameters")  # of a tool
UNCONFIRMED = "The database has not confirmed in time that this server is alive. Send requests to another one."
DRAINING = "The server is stopping. Send new requests to another one, or wait until it has been started again."


def example(host: str, *, token: bool = False) -> str:
    """A first request to try, for a shell; with a place for the token where one is needed."""
    body = """{"message": "Print hello world with the shell."}"""
    who = ' -H "authorization: Bearer $DRAGOMAN_TOKEN"' if token else ""
    return f"curl -N {host}/chat{who} -H 'content-type: application/json' -d '{body}'"


async def home(request: Request) -> Response:
    """The page for browsers, a summary for others.

    Browsers send `Accept: text/html`. The summary has a request to try, and the routes.
    """
    if page.wants_page(request.headers):
        return await page.index(request)
    model = services_of(request).models.default.provider.model
    shown = example(request.url.netloc, token="authorization" in request.headers)
    lines = (f"  {route.row.method:7}{route.path}" for route in await request.app.all_routes())
    return PlainTextResponse(
        GREETING.format(model=model, example=shown, routes="\n".join(lines)), headers={"Vary": "Accept"}
    )


async def livez(_: Request) -> Response:
    """The process lives."""
    return ASCIIResponse({"live": True})


async def hello(_: Request) -> Response:
    """204 where there is a server. Claude Code looks here if the server can be reached."""
    return Response(status_code=204)


async def readyz(request: Request) -> Response:
    """The server takes runs, or why not.

    503 with the reason while another server should have the requests. A paused server stays ready: the others are
    paused with it, and its page, logs and `POST /resume` must be reached.
    """
    services = services_of(request)
    if services.draining:
        return ASCIIResponse({"ready": False, "reason": DRAINING}, 503)
    if services.runs.peers.left_s <= 0:
        return ASCIIResponse({"ready": False, "reason": UNCONFIRMED}, 503)
    try:
        await services.store.check()
    except StoreFailed as failure:
        return ASCIIResponse({"ready": False, "reason": str(failure)}, 503)
    return ASCIIResponse(
        {
            "ready": True,
            "paused": services.switch.paused,
            "model": services.models.default.provider.model,
            "sandbox": services.factory.sandbox.level,
        }
    )


async def list_tools(request: Request) -> Response:
    """The tools that you may use. The list that the model is given."""
    services = services_of(request)
    tools = services.factory.toolbox(await services.factory.current_gate(current_principal(request))).offered
    return ASCIIResponse({"tools": [{name: getattr(tool, name) for name in OFFERED} for tool in tools]})


ROUTES = (
    *tagged(
        "Server",
        Route("GET /", home, rights="user", media=("text/html", "text/plain")),
        Route("GET /livez", livez, rights="open", answer={"live": "boolean"}),
        Route("GET /readyz", readyz, rights="open", answer={"ready": "boolean"}, statuses=(200, 503)),
        Route(f"GET {HELLO}", hello, rights="open"),
    ),
    *tagged(
        "Tools and profiles",
        Route("GET /tools", list_tools, rights="user", answer={"tools": ["@Tool"]}),
    ),
)
