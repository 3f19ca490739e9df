"""Ids of responses and their items: made from the run's id, so that a replay has the same ones and leads back to it.

A run that waits for approval is answered in several responses: `after` is the number of the event that ended the one
before, 0 for the first.
"""

from __future__ import annotations

from msgspec import Struct

from tools.base.patterns import lazy_pattern

MESSAGE, REASONING, FUNCTION_CALL, CUSTOM_CALL, OWN_CALL = "msg", "rs", "fc", "ctc", "mcp"  # before an item's id
DECISION, COMPACTION = "mcpd", "cmp"
RUN = "run_"
_STEM = r"([0-9a-f]+)(?:s(\d+))?"  # a hexadecimal number has no s
_RESPONSE = lazy_pattern(rf"resp_{_STEM}")
_KINDS = "|".join((MESSAGE, REASONING, FUNCTION_CALL, CUSTOM_CALL, OWN_CALL, DECISION, COMPACTION))
_ITEM = lazy_pattern(rf"(?:{_KINDS})_{_STEM}_(\d+)")
_APPROVAL = lazy_pattern(r"mcpr_([0-9a-f]+)_(\d+)_(.+)")


class ResponseId(Struct, frozen=True):
    """A response of a run, or (`index`) an item of it."""

    run: str
    after: int = 0
    index: int = 0


class ApprovalPlace(Struct, frozen=True):
    """The event `seq` of a run, which asks for approval of `call`."""

    run: str
    seq: int
    call: str


def stem_of(run: str, after: int = 0) -> str:
    """The part that the ids of a response and its items share."""
    return f"{run.removeprefix(RUN)}s{after}" if after else run.removeprefix(RUN)


def response_id(run: str, after: int = 0) -> str:
    return f"resp_{stem_of(run, after)}"


def item_id(kind: str, stem: str, index: int) -> str:
    return f"{kind}_{stem}_{index}"


def approval_id(run: str, seq: int, call: str) -> str:
    return f"mcpr_{run.removeprefix(RUN)}_{seq}_{call}"


def response_place(response: str) -> ResponseId | None:
    """The run of a response id, or None if it is none of ours."""
    found = _RESPONSE.fullmatch(response)
    return ResponseId(f"{RUN}{found[1]}", int(found[2] or 0)) if found else None


def item_place(item: str) -> ResponseId | None:
    found = _ITEM.fullmatch(item)
    return ResponseId(f"{RUN}{found[1]}", int(found[2] or 0), int(found[3])) if found else None


def approval_place(approval: str) -> ApprovalPlace | None:
    found = _APPROVAL.fullmatch(approval)
    return ApprovalPlace(f"{RUN}{found[1]}", int(found[2]), found[3]) if found else None
