"""What there is: health, the tools on offer, and a greeting at the root."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from app.store import StoreFailed
from routes.errors import ASCIIResponse
from routes.services import asker, services_of

GREETING = """dragoman: a streaming agent server. Model: {model}.

Try:
  {example}

Routes:
{routes}
"""


def example(host: str) -> str:
    """A first request to try, for a shell."""
    body = """{"message": "Print hello world with the shell."}"""
    return f"curl -N {host}/chat -H 'content-type: application/json' -d '{body}'"


async def home(request: Request) -> Response:
    model = services_of(request).provider.model
    lines = (f"  {' '.join(sorted(route.methods - {'HEAD'})):7}{route.path}" for route in request.app.routes)
    return PlainTextResponse(GREETING.format(model=model, example=example(request.url.netloc), routes="\n".join(lines)))


async def livez(_: Request) -> Response:
    return ASCIIResponse({"live": True})


async def readyz(request: Request) -> Response:
    """503 with the reason while a run could not be kept."""
    services = services_of(request)
    sandbox = services.sandbox.level
    try:
        await services.store.check()
    except StoreFailed as failure:
        return ASCIIResponse({"ready": False, "reason": str(failure)}, 503)
    return ASCIIResponse({"ready": True, "model": services.provider.model, "sandbox": sandbox})


async def list_tools(request: Request) -> Response:
    """The tools that the asker may use: the same list that the model is given."""
    tools = services_of(request).toolbox(asker(request)).offered
    rows = [
        {"name": tool.name, "description": tool.description, "risk": tool.risk, "parameters": tool.parameters}
        for tool in tools
    ]
    return ASCIIResponse({"tools": rows})
