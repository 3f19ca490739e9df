"""Questions of an MCP server to a person: shown as an approval of the run, declined without an answer."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from app.transcript.unfit_arguments import unfit
from parsing import Arguments
from tools.base.schemas import argument_error
from tools.mcp.model import ElicitationAnswer, ElicitationQuestion
from tools.mcp.names import question_name
from tools.tool import NoAnswer

DECLINED = ElicitationAnswer("decline")


async def elicit(question: ElicitationQuestion) -> ElicitationAnswer:
    """Ask the person of the run that the server was called by; without one, the answer is to decline."""
    ask = question.context.ask if question.context else None
    if ask is None or not _may_be_asked(question):
        return DECLINED
    name = question_name(question.server)
    schema = dict(question.schema or {})

    def objection(answer: Arguments) -> str | None:
        return None if question.url else argument_error(name, schema, question.with_defaults(answer))

    content = await ask(name, _shown(question), _reason(question), objection)
    if isinstance(content, NoAnswer):
        return DECLINED
    return ElicitationAnswer("accept", None if question.url else content)


def _may_be_asked(question: ElicitationQuestion) -> bool:
    """A page must not be open to eavesdroppers. A form for secrets does not come so far."""
    if question.url:
        parts = urlsplit(question.url)
        # Browsers end the name of a host at a backslash, and undo what is escaped in it.
        return parts.scheme == "https" and bool(parts.hostname) and not set("@\\%") & set(parts.netloc)
    return not unfit(dict(question.schema or {}))  # which could not be written as JSON


def _shown(question: ElicitationQuestion) -> dict[str, Any]:
    if question.url:
        return {"message": question.message, "url": question.url, "host": urlsplit(question.url).hostname}
    return {"message": question.message, "schema": dict(question.schema or {})}


def _reason(question: ElicitationQuestion) -> str:
    during = f", while {question.tool} runs" if question.tool else ""
    if question.url:
        return f"The MCP server {question.server} asks you to open a page{during}. Approve once you have done so."
    return f"The MCP server {question.server} asks you{during}. Approve with the answers as arguments, or deny."
