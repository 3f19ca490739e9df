"""A lane's requests: read, made a run of, and answered as its client expects.

A run is the agent's, or one round that is relayed (`routes.lanes.models`). The lane, or the setting `lane_disconnect`,
says if a client that leaves cancels its run; a retry of the same request joins it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing, suppress
from functools import partial
from time import time
from typing import Any

from msgspec import Struct
from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response

from app.core.attachments import File
from app.core.events import ToolHanded
from app.core.rules import WhenAbsent
from app.log.event_writer import Watcher
from app.runs.connections import OpenStream
from app.runs.run_options import RunOptions
from app.storage.principals import Principal
from app.storage.runs import EventRow, RunRow
from app.transcript.run_request import ConversationMoved, RunRequest
from app.workspace.document_texts import with_attachments, with_texts
from routes.access.members import CONVERSATION_HEADER, outside_name
from routes.lanes.answer import Answer
from routes.lanes.attendance import Attendance, RequestKey
from routes.lanes.body import ReadBody, read_lane_request
from routes.lanes.errors import STOPPED, failure_of
from routes.lanes.event_text import fields_of
from routes.lanes.kept_turns import keeping, recorded
from routes.lanes.lane import Lane, LaneRequest, Turn
from routes.lanes.models import AGENT, agent_options, continued, model_choice, options_of_headers, relayed_parameters
from routes.lanes.sessions import LaneSessions
from routes.lanes.streams import Left, Pages, collected, lane_frames
from routes.lanes.verdicts import Resumed, last_decided, resumed_run
from routes.protocol.errors import ASCIIResponse, Refused
from routes.protocol.route import Route, tagged
from routes.protocol.sse import EventStreamResponse, OnLeave
from routes.services import Services, current_principal, services_of, traceparent_of

ENDING_S = 1.0  # for a run whose end has been sent
RETRIES = "x-stainless-retry-count"  # of OpenAI's and Anthropic's SDKs


def lane_routes(lanes: Sequence[Lane]) -> tuple[Route, ...]:
    return tagged("Clients of other APIs", *map(_route, lanes))


def _route(lane: Lane) -> Route:
    return Route(
        f"POST {lane.path}",
        partial(serve, lane),
        rights="user",
        about=lane.about,
        answer=lane.answer,
        errors=(409,),
        body=lane.body,
        stream="lane",
        foreign_errors=True,
    )


async def serve(lane: Lane, request: Request) -> Response:
    """One turn, streamed or whole."""
    services, principal = services_of(request), current_principal(request)
    body = await read_lane_request(request, lane.read, lane.prepare)
    if key := outside_name(request.headers, CONVERSATION_HEADER):
        body.request.set_conversation(key)
    with services.presence.place(principal) as place:
        serving = Serving(
            lane,
            services,
            principal=principal,
            attendance=attendance_of(request),
            body=body,
            place=place,
            given=options_of_headers(request.headers),
            traceparent=traceparent_of(request, services),
        )
        return await serving.answer(request)


def attendance_of(request: Request) -> Attendance:
    attendance = request.app.state.attendance
    assert isinstance(attendance, Attendance)
    return attendance


def leaving(services: Services, attendance: Attendance, lane: Lane, run: str) -> OnLeave | None:
    """Return what is done when a reader of a run leaves; None where it goes on."""
    goes_on = lane.goes_on(services.settings.lane_disconnect)
    return None if goes_on else partial(attendance.leave, services.runs, run)


class Serving(Struct, frozen=True):
    """One request of a lane."""

    lane: Lane
    services: Services
    principal: Principal
    attendance: Attendance
    body: ReadBody
    place: OpenStream
    given: Mapping[str, Any]  # options of its headers
    traceparent: str

    async def answer(self, request: Request) -> Response:
        lane_request = self.body.request
        run = await self._run(retries=request.headers.get(RETRIES, "0") not in ("", "0"))
        turn = Turn(
            run=run.row.id,
            session=run.row.session,
            created=int(run.row.created),
            model=lane_request.model or AGENT,
            request=lane_request,
            after=run.after,
            decided=run.decided,
        )
        if lane_request.stream:
            return self._stream(turn)
        if lane_request.background:
            self.place.leave()
            return self._whole(Answer(), turn)
        return await self._collect(request, turn)

    async def _run(self, *, retries: bool) -> Resumed:
        """The run of this request: one under way, or a new one."""
        key = RequestKey(self.principal.keeper, self.lane.name, self.body.digest)
        if retries and (row := await self.attendance.join(self.services.runs, key, self.principal)):
            return Resumed(row)
        request = self.body.request
        if request.verdicts:
            return await resumed_run(self.services, self.principal, self._sessions, request, door=self.lane.door)
        agent = model_choice(request.model).agent and not request.compact
        named = key.named(request.thread, request.run) if request.thread and not agent else None
        found = await self._sessions.returned_run(request) if agent else None
        if named and request.run:  # a relay is known as long as its log
            found = await self.attendance.join(self.services.runs, named, self.principal)
        if found:
            return Resumed(found, decided=await last_decided(self.services, self.principal, found))
        start = self._start_agent if agent else self._start_relay
        while True:
            with suppress(ConversationMoved):
                row = await start(request)
                self.attendance.remember(key, row)
                if named:
                    self.attendance.remember(named, row, keeping("{}", self.lane.name, request))
                return Resumed(row)

    async def _start_agent(self, lane_request: LaneRequest) -> RunRow:
        there = lane_request.asks or self.services.presence.has_page(self.principal.name)
        options = agent_options(lane_request, WhenAbsent.WAIT if there else WhenAbsent.DENY, self.given)
        new = await self._sessions.turn(lane_request)
        kept = {name: value for name, value in new.modes.items() if getattr(options, name) is None}
        options = options.model_copy(update=kept)
        agent = await self.services.factory.agent(self.principal, options, new.session)
        if new.imported:
            imported = await with_texts(new.imported, self.services.factory.sandbox, agent.view.window)
            new = replace(new, imported=imported, history=with_attachments(new.history, imported))
        if lane_request.asks and new.session:
            await self._end_undecided(new.session)
        turn = replace(
            new,
            when_busy="queue",
            time_limit_s=self.services.factory.limits(options).seconds,
            policy=self._policy(options),
            known=True,
            traceparent=self.traceparent,
            tied=not self._goes_on,
        )
        return await self.services.runs.start(agent, self.principal, turn)

    async def _end_undecided(self, session: str) -> None:
        """End a run whose question the client has seen and passed over: its turn would not come otherwise."""
        for row in await self.services.store.approvals(self.principal.name):
            if row.session == session:
                await self.services.runs.cancel(row.run)

    async def _start_relay(self, lane_request: LaneRequest) -> RunRow:
        model = model_choice(lane_request.model).model
        options = RunOptions(model=model, client_tools=lane_request.tools or None, **self.given)
        messages, files = lane_request.messages, lane_request.files
        if lane_request.previous:
            await self._has_ended(lane_request.previous)
            earlier = await self._sessions.history(lane_request.previous)
            messages, files = continued(earlier.history, messages), [*earlier.imported, *files]
        options = await self.services.factory.resolved(self.principal, options)
        parameters = relayed_parameters(options, lane_request.parameters)
        if lane_request.compact:  # notes have no format, and make no calls
            parameters = {"tool_choice": "none"} if lane_request.tools else {}
        relay = self.services.factory.relay(self.principal, options, parameters, files)
        files = [*await with_texts(files, self.services.factory.sandbox, relay.view.window)]
        check_seen(files)
        messages = with_attachments(messages, files)
        if lane_request.compact:
            messages = await lane_request.compact(lane_request, messages, relay.view)
        turn = RunRequest(
            "",
            time_limit_s=self.services.factory.limits(options).seconds,
            policy=self._policy(options),
            history=messages,
            imported=files if lane_request.store else (),
            unlisted=not lane_request.store,
            labels=await self._sessions.labels_of(lane_request),
            traceparent=self.traceparent,
            tied=True,
        )
        return await self.services.runs.start(relay, self.principal, turn)

    async def _has_ended(self, run: str) -> None:
        """Raises Refused if the run goes on: the history would be without its answer."""
        await self._sessions.previous(run)
        try:
            async with asyncio.timeout(ENDING_S):
                await self.services.runs.ended(run)
        except TimeoutError:
            problem = "The previous response is still in progress. Wait until it has ended, or cancel it."
            raise Refused(400, "previous_response_in_progress", problem, param="previous_response_id") from None

    def _policy(self, options: RunOptions) -> str:
        policy = keeping(options.policy(), self.lane.name, self.body.request)
        records = self.services.factory.records(options)
        return recorded(policy, self.lane.name, self.body.request) if records else policy

    def _stream(self, turn: Turn) -> Response:
        on_leave = None if self._goes_on else partial(self._leave, turn.run)
        encoder, watcher = self.lane.encoder(turn), Watcher(0)
        pages, attended = self._pages(turn, 0, watcher), self.attendance.attending(turn.run)
        frames = lane_frames(pages, encoder, attended, self.lane.parting)
        return EventStreamResponse(self.place, frames, self._headers(turn), on_leave, (watcher, encoder.frames))

    async def _collect(self, request: Request, turn: Turn) -> Response:
        try:
            with self.attendance.attending(turn.run):
                pages = self._pages(turn, turn.after)
                answer = await collected(pages, request.receive, self.place, asks=turn.request.asks)
        except Left:
            self.place.leave()
            if not self._goes_on:
                await self._leave(turn.run)
            return Response(status_code=204)  # which has no reader
        finally:
            self.place.leave()
        if failed := answer.failure or STOPPED.get(answer.reason):
            raise failure_of(failed)
        return self._whole(answer, turn)

    def _whole(self, answer: Answer, turn: Turn) -> Response:
        return ASCIIResponse(self.lane.whole(answer, turn), headers=self._headers(turn))

    def _headers(self, turn: Turn) -> dict[str, str]:
        return {"X-Run-Id": turn.run, "X-Session-Id": turn.session} | dict(self.lane.headers)

    def _pages(self, turn: Turn, after: int, watcher: Watcher | None = None) -> Pages:
        pages = self.services.runs.watch(turn.run, after, watcher)
        hands_over = model_choice(turn.request.model).agent and turn.request.tools
        return self._with_calls_remembered(pages, turn.run) if hands_over else pages

    async def _with_calls_remembered(self, pages: Pages, run: str) -> AsyncGenerator[Sequence[EventRow], None]:
        """The same pages. The session can be found by a call before its client sees that."""
        async with aclosing(pages):
            async for rows in pages:
                for row in rows:
                    if row.type == ToolHanded.type:
                        await self._sessions.remember_call(fields_of(row)["call"], run, time())
                yield rows

    async def _leave(self, run: str) -> None:
        """The client has left. A run that waits for its decision stays: it is sent with the next request."""
        if not (self.body.request.asks and self.services.runs.approvals.is_waiting(run)):
            await self.attendance.leave(self.services.runs, run)

    @property
    def _goes_on(self) -> bool:
        """True for a run that its client may leave."""
        return self.body.request.background or self.lane.goes_on(self.services.settings.lane_disconnect)

    @property
    def _sessions(self) -> LaneSessions:
        return LaneSessions.of(self.services, self.principal, self.lane.name)


def check_seen(files: Sequence[File]) -> None:
    """Refuse files that no model is sent: a relay has no workspace for them. Raises Refused."""
    for file in files:
        if not file.attachment.ability and not file.attachment.text:
            name, media_type = ascii(file.attachment.file_name[:80]), file.attachment.media_type
            why = f" ({file.attachment.about})" if file.attachment.about else ""
            problem = f"The file {name} is {media_type}{why}, and a relayed model is sent pictures and documents only."
            raise Refused(400, "unsupported_file", f"{problem} Send its text, or ask dragoman/agent.")
