"""The response object: what it repeats of the request, its status, and the response as a whole."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from app.context.compaction.summary import summary_text
from routes.lanes.answer import Answer, DecidedCall, HandedCall, OwnCall, Used, WaitingCall, Words
from routes.lanes.errors import STOPPED, failure_of, openai_error
from routes.lanes.lane import Turn
from routes.lanes.responses import ids, items
from routes.lanes.responses.ids import item_id, response_id, stem_of

NAME = "responses"  # of the lane
IN_PROGRESS = "in_progress"
COMPACTION = "compaction"  # in the echo of a request for one
NO_NOTES = "The model wrote no usable notes on the conversation. Send the request again, or use another model."
COMPLETE = frozenset({"answered", "client_tools"})
# Codex gives up at these codes and repeats a request that failed with any other.
AT_ONCE = frozenset({"context_length_exceeded", "insufficient_quota", "invalid_prompt", "server_is_overloaded"})
# Codes of the ends in STOPPED, as Codex knows them.
STOPPED_CODES = {"server_stopped": "server_error", "paused": "server_is_overloaded", "revoked": "invalid_prompt"}


class Outcome(Struct, frozen=True):
    """The end of a response: its status, and why it is not whole."""

    status: str = IN_PROGRESS
    incomplete: str | None = None
    error: Mapping[str, str] | None = None

    @property
    def event(self) -> str:
        """The type of its last event: openai-js throws at `response.cancelled`, which it does not know."""
        return "incomplete" if self.status == "cancelled" else self.status


def finished(reason: str, *, cut: bool, declined: bool) -> Outcome:
    """The outcome of `run.finished`; in its last round the model was `cut`, or `declined` to answer."""
    if reason == "cancelled":
        return Outcome("cancelled")
    if reason in STOPPED:
        return Outcome("failed", error={"code": STOPPED_CODES[reason], "message": STOPPED[reason]["message"]})
    if reason == "answered" and declined:
        return Outcome("incomplete", "content_filter")
    if reason in COMPLETE and not (cut and reason == "answered"):
        return Outcome("completed")
    return Outcome("incomplete", "max_output_tokens")


def failed(fields: Mapping[str, Any]) -> Outcome:
    """The outcome of `run.failed`."""
    _, body = openai_error(failure_of(fields))
    code, message = body["error"]["code"], body["error"]["message"]
    if not fields["retryable"] and code not in AT_ONCE:
        code = "invalid_prompt"
    return Outcome("failed", error={"code": code, "message": message})


def usage_fields(used: Used) -> dict[str, Any]:
    """Reasoning tokens are not counted apart from others, and no cache is written: SDKs require the fields."""
    return {
        "input_tokens": used.prompt,
        "input_tokens_details": {"cached_tokens": used.cached, "cache_write_tokens": 0},
        "output_tokens": used.completion,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": used.prompt + used.completion,
    }


class ResponseHead(Struct):
    """The part of a response that stays the same from its beginning to its end."""

    id: str
    stem: str
    names: items.ToolNames
    seal: bool  # give reasoning back as opaque text, too
    fields: Mapping[str, Any]
    approvals: Mapping[str, str]  # by call: the id of the request for approval that was answered
    compaction: Mapping[str, Any]  # what its summary says beside the notes, if it is one

    @classmethod
    def of(cls, turn: Turn) -> ResponseHead:
        echo = turn.request.echo
        response = response_id(turn.run, turn.after)
        head = {"id": response, "object": "response", "created_at": turn.created, "model": turn.model}
        return cls(
            id=response,
            stem=stem_of(turn.run, turn.after),
            names=tool_names(echo),
            seal=bool(echo.get("seal")),
            fields=head | echo.get("response", {}),
            approvals=echo.get("approvals", {}),
            compaction=echo.get(COMPACTION, {}),
        )

    def item(self, kind: str, index: int) -> str:
        return item_id(kind, self.stem, index)

    def own_call(self, call: OwnCall, at: int, status: str = "", *, added: bool = False) -> items.Item:
        """A call of ours as the item `at`. Never a function_call: clients would run that themselves, a second time."""
        error = None
        if call.result is not None and not call.ok:
            error = {"type": "mcp_tool_execution_error", "content": [{"type": "text", "text": call.result}]}
        return {
            "id": self.item(ids.OWN_CALL, at),
            "type": "mcp_call",
            "status": status or ("completed" if call.ok else "failed"),
            "approval_request_id": self.approvals.get(call.call),
            "arguments": "" if added else items.arguments_text(call.arguments),
            "error": error,
            "name": call.name,
            "output": call.result if call.ok else None,
            "server_label": items.SERVER_LABEL,
        }

    def compacted(self, answer: Answer) -> tuple[Outcome, list[items.Item]]:
        """The outcome of a compaction, and its one item if there are notes: the summary as opaque text."""
        outcome, notes = outcome_of(answer, asks=False), answer.text.strip()
        if outcome.status == "completed" and notes:
            summary = summary_text(**self.compaction, notes=notes, code=self.stem[:8])  # the same in each replay
            item = {"id": self.item(ids.COMPACTION, 0), "type": "compaction"}
            return outcome, [item | {"encrypted_content": items.sealed(summary)}]
        if outcome.status in ("completed", "incomplete"):
            outcome = Outcome("failed", error={"code": "server_error", "message": NO_NOTES})
        return outcome, []

    def other_decision(self, fields: Mapping[str, Any], at: int) -> items.Item | None:
        """Return the item `at` for a decision of another door on the call that this response goes on with."""
        request = self.approvals.get(fields["call"])
        return items.other_decision(self.item(ids.DECISION, at), request, fields) if request else None


def tool_names(echo: Mapping[str, Any]) -> items.ToolNames:
    names = echo.get("names", {})
    namespaces = {flat: (pair[0], pair[1]) for flat, pair in names.get("namespaces", {}).items()}
    return items.ToolNames(frozenset(names.get("custom", ())), namespaces, frozenset(names.get("all", ())))


def ending(outcome: Outcome) -> dict[str, Any]:
    """The fields of a response that its end decides."""
    incomplete = {"reason": outcome.incomplete} if outcome.incomplete else None
    return {"status": outcome.status, "error": outcome.error, "incomplete_details": incomplete}


def response_json(
    head: str, outcome: Outcome, output: Sequence[str] = (), usage: Mapping[str, Any] | None = None
) -> str:
    """The response; `head` is the JSON of its first fields, `output` that of its items."""
    end = f'"output": [{", ".join(output)}], "usage": {json.dumps(usage)}}}'
    return f"{head[:-1]}, {json.dumps(ending(outcome))[1:-1]}, {end}"


def outcome_of(answer: Answer, *, asks: bool) -> Outcome:
    """The outcome as far as the log has it: in progress while it has no end."""
    if answer.failure:
        return failed(answer.failure)
    if answer.reason:
        return finished(answer.reason, cut=answer.cut, declined=answer.declined)
    waits = bool(answer.items) and isinstance(answer.items[-1], WaitingCall)  # for a person
    return Outcome("completed") if asks and waits else Outcome()


def whole(answer: Answer, turn: Turn) -> dict[str, Any]:
    """The response as it stands, for clients that do not stream."""
    head, outcome = ResponseHead.of(turn), outcome_of(answer, asks=turn.request.asks)
    if head.compaction:
        outcome, output = head.compacted(answer)
    else:
        output = _output(answer, turn, head, IN_PROGRESS if outcome.status == IN_PROGRESS else "incomplete")
    usage = usage_fields(answer.used) if outcome.status != IN_PROGRESS else None
    return {**head.fields, **ending(outcome), "output": output, "usage": usage}


def _output(answer: Answer, turn: Turn, head: ResponseHead, unfinished: str) -> list[items.Item]:
    """The items of a whole answer. `unfinished` is the status of calls of ours that have no result."""
    output = list[items.Item]()
    for one in answer.items:
        at = len(output)
        match one:
            case Words(thought=True) if one.text.strip():
                output.append(items.reasoning(head.item(ids.REASONING, at), one.text, seal=head.seal))
            case Words(thought=False) if one.text.strip():
                output.append(items.message(head.item(ids.MESSAGE, at), items.without_gap(one.text, at)))
            case HandedCall():
                call = items.ClientCall(one.call, one.name, one.arguments, head.names, one.written)
                output.append(call.item(head.item(call.id_kind, at), call.text))
            case OwnCall() if one.name not in head.names.all:
                output.append(head.own_call(one, at, unfinished if one.result is None else ""))
            case DecidedCall():
                output += filter(None, [head.other_decision(one.fields, at)])
            case WaitingCall() if turn.request.asks:
                approval = ids.approval_id(turn.run, one.seq, one.call)
                output.append(items.approval_request(approval, one.name, one.arguments))
    return output
