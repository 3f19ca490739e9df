"""Questions from replica to replica, answered once: cancel this run, decide that call, show me this output.

They are messages, and messages may be lost: a question is sent again each second until it is answered, and a replica
that has answered it answers the same again. Texts too long for a message lie in the table `answers` meanwhile.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections import OrderedDict
from contextlib import suppress
from secrets import token_hex
from typing import Any

from app.replicas.peers import Answerer, Body, Refusal, ReplicaGone
from app.replicas.postgres.failures import FAILURES
from app.replicas.postgres.messages import MOST_BYTES, Messages, channel_of, encoded
from app.storage.changes import StoreFailed

AGAIN_S = 1.0
TIDIED = 64  # long messages after which those are deleted that were never read
REMEMBERED = 1_024  # answers, for questions that come again
KEEP_LONG = """
    INSERT INTO answers (ask, part, content) VALUES ($1, 0, $2)
    ON CONFLICT (ask, part) DO UPDATE SET content = excluded.content
"""
READ_LONG = "SELECT content FROM answers WHERE ask = $1"
FORGET_USED = "DELETE FROM answers WHERE ask = ANY ($1::text[])"
FORGET_LONG = "DELETE FROM answers WHERE at < clock_timestamp() - interval '10 minutes'"
IS_GONE = "SELECT NOT EXISTS (SELECT 1 FROM replicas WHERE id = $1 AND state <> 'gone')"

logger = logging.getLogger(__name__)


class Asks:
    """`me` is the id of this replica; it changes when the replica begins again."""

    def __init__(self, pool: Any, messages: Messages) -> None:
        self.me = ""
        self.answerers: dict[str, Answerer] = {}
        self._pool = pool
        self._kept = 0  # long messages
        self._messages = messages
        self._open: dict[str, asyncio.Future[Body]] = {}
        self._answers: OrderedDict[str, asyncio.Task[str]] = OrderedDict()
        self._sending: set[asyncio.Task[None]] = set()
        messages.handlers |= {"ask": self._asked, "answer": self._answered}

    async def ask(self, replica: str, question: str, body: Body) -> Any:
        """The answer of another replica. Raises Refusal, ReplicaGone, StoreFailed."""
        number, long = token_hex(8), list[str]()
        answer = self._open[number] = asyncio.get_running_loop().create_future()
        try:
            payload, me = "", ""
            while True:
                if long or me != self.me:  # a crash empties `answers`; one that begins again has a new channel
                    me = self.me
                    payload, long = await self._fitting("ask", number, {"by": me, "question": question, "body": body})
                self._messages.send(channel_of(replica), payload)
                await asyncio.wait([answer], timeout=AGAIN_S)
                if answer.done():
                    long += [place] if (place := answer.result().get("long")) else []
                    return _result(await self._whole(answer.result()))
                if await self._fetch(IS_GONE, replica):
                    raise ReplicaGone(f"Server {replica} has stopped.")
        finally:
            del self._open[number]
            if long:
                self._start(self._forget(long))

    async def _forget(self, places: list[str]) -> None:
        with suppress(StoreFailed):  # it is deleted later
            await self._fetch(FORGET_USED, places)

    def _asked(self, body: Body) -> None:
        self._start(self._answer(body))

    def _answered(self, body: Body) -> None:
        answer = self._open.get(body["id"])
        if answer and not answer.done():
            answer.set_result(body)

    def _start(self, work: Any) -> None:
        task = asyncio.create_task(work, name="answer to a replica")
        self._sending.add(task)
        task.add_done_callback(self._sending.discard)

    async def _answer(self, body: Body) -> None:
        try:
            whole = await self._whole(body)
            number = body["id"]
            if number not in self._answers:
                self._answers[number] = asyncio.create_task(self._worked_out(number, whole), name=whole["question"])
                if len(self._answers) > REMEMBERED:
                    self._forget_one()
            self._messages.send(channel_of(whole["by"]), await asyncio.shield(self._answers[number]))
        except StoreFailed as failure:  # it is asked again
            logger.warning("a question of another replica is not answered: %s", failure)

    async def _worked_out(self, number: str, whole: Body) -> str:
        result = await self._result_of(whole["question"], whole["body"])
        while True:
            try:
                payload, _ = await self._fitting("answer", number, result)
                return payload
            except StoreFailed as failure:  # what was done is not done again
                logger.warning("the answer to another replica waits: %s", failure)
                await asyncio.sleep(AGAIN_S)

    def _forget_one(self) -> None:
        """Forget the oldest answer; a question that is still worked on would be worked on twice."""
        if oldest := next((number for number, task in self._answers.items() if task.done()), None):
            del self._answers[oldest]

    async def _result_of(self, question: str, body: Body) -> Body:
        answerer = self.answerers.get(question)
        if answerer is None:
            return {"refusal": "unknown_question", "words": f"This server does not know the question {question!r}."}
        work = asyncio.ensure_future(answerer(body))
        await asyncio.wait([work])
        match work.exception():
            case None:
                return {"result": work.result()}
            case Refusal() as refusal:
                return {"refusal": refusal.name, "words": str(refusal), "fields": refusal.fields}
            case StoreFailed() as failure:
                return {"refusal": "storage_failed", "words": str(failure)}
            case error:
                logger.error("the question %r of another replica failed", question, exc_info=error)
                return {"refusal": "internal", "words": "The other server failed to answer: see its log."}

    async def _fitting(self, kind: str, number: str, body: Body) -> tuple[str, list[str]]:
        """The message; a long body is stored, and the message says so: then with its place."""
        payload = encoded(kind, {"id": number} | body)
        if len(payload) <= MOST_BYTES:
            return payload, []
        place = f"{kind} {number}"
        await self._fetch(KEEP_LONG, place, payload)
        self._kept += 1
        if self._kept % TIDIED == 0:
            await self._fetch(FORGET_LONG)
        return encoded(kind, {"id": number, "long": place}), [place]

    async def _whole(self, body: Body) -> Body:
        if "long" not in body:
            return body
        text = await self._fetch(READ_LONG, body["long"])
        if text is None:
            raise StoreFailed("The database has lost a message between two servers. Try again.")
        whole: Body = json.loads(text)
        return whole

    async def _fetch(self, sql: str, *values: object) -> Any:
        try:
            async with self._pool.acquire() as connection:
                return await connection.fetchval(sql, *values)
        except FAILURES as error:
            raise StoreFailed(f"The database failed between two servers: {error}. Try again.") from error


def _result(answer: Body) -> Any:
    if "refusal" in answer:
        raise Refusal(answer["refusal"], answer["words"], answer.get("fields"))
    return answer["result"]
