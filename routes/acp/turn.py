"""One run of a session: its events as the editor sees them, and its questions as requests to the editor."""

from __future__ import annotations

import asyncio

from acp import RequestError

from app.core import events
from routes.acp.editor import Editor
from routes.acp.updates import Json, Updates, shown_text
from routes.terminal.approval_text import choices_of, form_of, reason_of
from routes.terminal.event_client import Link
from routes.texts import text
from routes.texts.exact import exact, exact_json, one_line
from tools.builtin.ask_user import OWN_QUESTION

APPROVE: Json = {"decision": "approve", "door": "acp"}
DENY: Json = {"decision": "deny", "door": "acp"}
# Notes of denials, for the model.
NOT_ASKED = "The editor could not ask the person."
NO_FORM = "The person's editor cannot show a form. Ask in your answer."
OUTSIDE = "It acts in the project on this machine, outside of any sandbox."
Options = dict[str, tuple[str, str, Json]]


class Turn:
    """Shows events and decides on calls, as a terminal does (`run_display.Output`, `run_display.Answerer`)."""

    def __init__(self, editor: Editor, session: str, link: Link, updates: Updates) -> None:
        self.link = link
        self.updates = updates
        self.ended: events.RunFinished | events.RunFailed | None = None
        self.cancelled = self.stopped = False  # by the person, and at the server
        self.work: asyncio.Future[list[Json]] | None = None  # calls of the editor's tools
        self.handed: list[events.ToolHanded] = []
        self._editor = editor
        self._session = session

    def show(self, event: events.AgentEvent) -> None:
        if isinstance(event, events.RunFinished | events.RunFailed):
            self.ended = event
        elif isinstance(event, events.ToolHanded):
            self.handed.append(event)
        self._editor.show(self._session, *self.updates.of(event))

    def close(self) -> None:
        """Nothing is held back."""

    async def decision(self, wanted: events.ApprovalRequired) -> Json | None:
        """The editor's decision; cancelled if another door was first."""
        schema, forms = wanted.arguments.get("schema"), self._editor.capabilities.elicitation
        is_form = bool(schema) and (wanted.name == OWN_QUESTION or form_of(wanted) is not None)
        try:
            if is_form and forms and forms.form is not None:
                message = exact(str(wanted.arguments.get("message") or ""))
                form = {"mode": "form", "message": message, "requestedSchema": schema}
                answer = await self._editor.request("elicitation/create", sessionId=self._session, **form)
                filled = {"arguments": answer.get("content") or {}}
                return APPROVE | filled if answer.get("action") == "accept" else DENY
            if is_form and not choices_of(wanted):
                return DENY | {"note": NO_FORM}
            return await self._chosen(wanted, options_of(wanted))
        except RequestError:
            return DENY | {"note": NOT_ASKED}
        except ConnectionError:
            return None  # the editor has left, and another one may come

    async def permits(self, call: events.ToolHanded) -> bool:
        """Return the person's decision on a call of the editor's own tools. Raises RequestError."""
        wanted = events.ApprovalRequired(call.call, call.name, call.arguments, OUTSIDE, None)
        options = {key: one for key, one in options_of(wanted).items() if key != "session"}
        return bool((await self._chosen(wanted, options))["decision"] == "approve")

    async def _chosen(self, wanted: events.ApprovalRequired, options: Options) -> Json:
        offered = [{"optionId": key, "name": name, "kind": kind} for key, (name, kind, _) in options.items()]
        asked = {"sessionId": self._session, "toolCall": self._exact(wanted), "options": offered}
        match (await self._editor.request("session/request_permission", **asked)).get("outcome"):
            case {"optionId": str(chosen)} if chosen in options:
                return options[chosen][2]
        return DENY

    def _exact(self, wanted: events.ApprovalRequired) -> Json:
        """The call as a permission request shows it: all of its arguments, and nothing that cannot be seen."""
        call = self.updates.described(wanted.call, wanted.name, wanted.arguments)
        rows = [(name, one if isinstance(one, str) else exact_json(one)) for name, one in wanted.arguments.items()]
        whole = exact("\n".join(f"{name}: {value}" for name, value in rows))
        return call | {"content": [*call.get("content", ()), shown_text(whole, f"{reason_of(wanted)}\n\n")]}


def options_of(wanted: events.ApprovalRequired) -> Options:
    """The answers that a permission request offers, by their ids: name, kind and decision."""
    options: Options = {}
    for at, choice in enumerate(choices := choices_of(wanted)):
        options[f"answer-{at}"] = one_line(choice), "allow_once", APPROVE | {"arguments": {"answer": choice}}
    if not choices:
        options["once"] = text("approvals.approve"), "allow_once", APPROVE
    if not choices and form_of(wanted) is None:
        options["session"] = text("approvals.approve.session"), "allow_always", APPROVE | {"scope": "session"}
    for at, one in enumerate(wanted.proposals or ()):
        name = text("approvals.always", words=one_line(str(one.get("words"))))
        options[f"always-{at}"] = name, "allow_always", APPROVE | {"scope": "always", "pattern": one["pattern"]}
    return options | {"deny": (text("approvals.deny"), "reject_once", DENY)}
