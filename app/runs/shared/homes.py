"""Runs that begin at another server: where the files of their principal are.

The server that was asked chooses the ids of the run and of a new session, so that it finds the run if the other one
stops before it has answered; then either there is the run, which is taken over, or nothing was written and another
server of the node is asked. If the node has no server, a run that is no more than its message can wait for one.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import cache
from secrets import token_hex
from typing import Any, get_type_hints

from msgspec import convert, to_builtins
from msgspec.structs import replace

from app.replicas.nodes import Nodes
from app.replicas.peers import Body, Refusal, ReplicaGone, Replicas
from app.runs.agent import Agent
from app.runs.run_manager import AgentOf
from app.runs.shared.crossing import NOT_HERE, error_of
from app.storage.changes import Change, StoreFailed
from app.storage.principals import Principal
from app.storage.runs import RunRow, RunStore
from app.transcript.run_request import RunRequest

BESIDE = "beside"
AWAY = (
    "The files of this user are on node {node}, where no server runs at the moment. Start one there; or give the node "
    "up with `dragoman node forget {node}`."
)
MOVED = "The home of {name} has just moved. Try again."

Start = Callable[[Agent, Principal, RunRequest], Awaitable[RunRow]]


class HomeAway(StoreFailed):
    """A node that something belongs to has no server. The message says what to do."""

    def __init__(self, node: str) -> None:
        super().__init__(AWAY.format(node=node))
        self.node = node


async def begun_at(
    home: str, replicas: Replicas, store: RunStore, *, agent: Agent, principal: Principal, turn: RunRequest
) -> RunRow | None:
    """Begin a run at a server of this node; None if there is none, and the run may wait for one.

    Raises HomeAway if it may not, and what `RunManager.start` raises.
    """
    turn = replace(
        turn,
        run=f"run_{token_hex(10)}",
        new_session="" if turn.session else f"ses_{token_hex(10)}",
        policy=agent.policy_with(turn.policy),
    )
    row = stored_as(turn, principal)
    beside = turn.beside(row) if turn.beside else ()
    body = {"principal": to_builtins(principal), "turn": fields_of(turn), BESIDE: list(map(change_fields, beside))}
    for replica in await replicas.nodes.replicas_at(home):
        try:
            return convert(await replicas.ask(replica, "start", body), RunRow)
        except ReplicaGone:
            if begun := await store.run(turn.run):
                return begun
        except Refusal as refusal:
            if refusal.name == NOT_HERE:
                raise StoreFailed(MOVED.format(name=principal.name)) from refusal
            raise error_of(refusal) from refusal
    if turn.call or turn.results or turn.history or turn.files or turn.imported or turn.tied or turn.unlisted:
        raise HomeAway(home)
    return None


async def begun_here(body: Body, nodes: Nodes, agent_of: AgentOf, start: Start) -> Any:
    """Begin the run that another server was asked for. Raises Refusal, and what `RunManager.start` raises."""
    principal, turn = convert(body["principal"], Principal), turn_of(body["turn"])
    if await nodes.home_of(principal.name) != nodes.here:
        raise Refusal(NOT_HERE, f"The files of {principal.name} are not here.")
    beside = [change_of(*one) for one in body[BESIDE]]
    agent, _ = await agent_of(stored_as(turn, principal))
    return to_builtins(await start(agent, principal, replace(turn, beside=lambda _: beside)))


def stored_as(turn: RunRequest, principal: Principal) -> RunRow:
    """The row of the run, as it will be stored, but for what the other server knows."""
    session = turn.session or turn.new_session
    return RunRow(
        turn.run,
        session=session,
        principal=principal.name,
        model="",
        state="running",
        created=time.time(),
        policy=turn.stored_policy,
    )


@cache
def _hints() -> Mapping[str, Any]:
    return {name: hint for name, hint in get_type_hints(RunRequest).items() if name != BESIDE}


def fields_of(turn: RunRequest) -> Body:
    return {name: to_builtins(getattr(turn, name)) for name in _hints()}


def turn_of(fields: Body) -> RunRequest:
    """Fields of another version of this program are left out."""
    return RunRequest(**{name: convert(fields[name], hint) for name, hint in _hints().items() if name in fields})


def change_fields(change: Change) -> Sequence[Any]:
    return type(change).__name__, to_builtins(change)


def change_of(kind: str, fields: Body) -> Change:
    return convert(fields, _kinds()[kind])


@cache
def _kinds() -> Mapping[str, type[Change]]:
    found, left = dict[str, type[Change]](), [Change]
    while left:
        kind = left.pop()
        found[kind.__name__] = kind
        left += kind.__subclasses__()
    return found
