"""The examination of one model of one server: sends the probes, one after the other, and reports."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import aclosing
from datetime import date
from functools import partial
from typing import Any

import httpx2
from msgspec import Struct
from msgspec.structs import replace

from app.context.prompt import TEACHINGS, opening
from app.core.messages import Message
from app.core.provider import Provider, ProviderFailed
from app.diagnosis.defects import tools_ignored
from app.diagnosis.probes import (
    AT_A_TIME,
    AT_ONCE,
    NATIVE,
    PROBES,
    ROOM,
    SAMPLES,
    TOO_LONG,
    filled,
    tools_of,
    with_result,
)
from app.diagnosis.report import Report, Subject, code, report_of
from app.diagnosis.trial import TAUGHT, Trial
from app.models.capabilities.server_kind import server_kind
from app.models.capabilities.server_profiles import profile_of
from app.models.embedded.provider import EmbeddedProvider
from app.models.http.client import authorization, retried
from app.models.http.failures import excerpt, reason_in
from app.models.http.json_body import encode
from app.models.http.served_model import ServedModel
from app.models.wire.hosted_provider import refuses_tools
from app.models.wire.openai.history import wire_messages
from app.models.wire.openai.provider import OpenAIChat
from app.models.wire.parameters import Parameters

LIMIT_S = 180.0  # of one request
MOST_BYTES = 1 << 20  # of one answer
AGAIN = {True: 6, False: 20}  # pairs that are sent again in a quick diagnosis, and in a whole one
ROUNDS = {True: 1, False: 3}  # of requests at the same time
LONGEST_WINDOW = 32_768  # tokens that are worth being filled
# A red square of 64 pixels.
RED = (
    "iVBORw0KGgoAAAANSUhEUgAAAEAAAABAAQMAAACQp+OdAAAABlBMVEX/AAAAAP9sof2OAAAAD0lEQVR42mNgGAWjgHwAAAJAAAHgTR1EAAAAAElF"
    "TkSuQmCC"
)
REMOVED = "Its endpoint has been changed or removed since the examination began: start it again."
TODAY = date(2026, 1, 1)  # of the taught prompt


class CannotExamine(Exception):
    """The model cannot be examined. The message says why."""


class Progress(Struct, frozen=True):
    """Requests that have been answered, and about as many as there will be; `probe` is the last one."""

    done: int
    of: int
    probe: str


async def examine(provider: Provider, *, quick: bool) -> AsyncGenerator[Progress | Report, None]:
    """Send all probes, yield the progress, and last the report. Raises CannotExamine.

    Nothing that the model calls is run.
    """
    if not isinstance(provider, OpenAIChat | EmbeddedProvider):
        raise CannotExamine(f"{provider.model} does not speak chat completions: only those can be examined.")
    try:
        async with provider.direct() as server:
            window = await provider.window()  # finds its other abilities, too
            examination = Examination(server, provider, window, quick=quick)
            async with aclosing(examination.run()) as steps:
                async for step in steps:
                    yield step
            kind = "llama.cpp" if isinstance(provider, EmbeddedProvider) else await server_kind(server.base_url)
            yield await asyncio.to_thread(report_of, replace(examination.subject, server=kind or "another server"))
    except ProviderFailed as failure:
        raise CannotExamine(failure.message) from None


class Examination:
    """The trials of one examination. `run` sends them."""

    def __init__(self, server: ServedModel, provider: Provider, window: int | None, *, quick: bool) -> None:
        self.subject = Subject(
            model=provider.model,
            window=window,
            call_form=provider.call_form,
            offers_tools=provider.native_tools,
            images=provider.ability("images").value,
            quick=quick,
        )
        self._server = server
        self._quick = quick
        self._url = f"{server.base_url}/chat/completions"
        self._headers = {"content-type": "application/json", **(server.headers or authorization(server.key))}
        self._parameters = Parameters(profile_of(server.base_url))
        self._has_room = False  # for a model that thinks first
        self._planned = list(self._plan())
        self._done = 0

    async def run(self) -> AsyncGenerator[Progress, None]:
        """Raises CannotExamine."""
        started = time.monotonic()
        for modes in self._planned:  # grows below
            if modes[0].probe.form is NATIVE and self.subject.native_out:
                continue
            await self._try(modes)
            if modes[0].probe.form is NATIVE and not self.subject.native_out:
                self._look_for_tools(modes[0])
            if self._done <= 2 and modes[0].status != 200:
                raise CannotExamine(f"{self.subject.model} does not answer: {modes[0].error}")
            yield self._progress(modes[0].probe.name)
        for round in range(ROUNDS[self._quick]):
            words = [f"{word}{place}" for place, word in enumerate([SAMPLES[round]["word"]] * AT_A_TIME)]
            trials = [Trial(probe=AT_ONCE, values={"word": word}, streamed=True) for word in words]
            await asyncio.gather(*map(self._send, trials))
            yield self._progress(AT_ONCE.name)
        if length := self._too_long():
            values = {"long": "tree " * length, "words": str(length)}
            await self._send(Trial(probe=TOO_LONG, values=values, streamed=True))
            yield self._progress(TOO_LONG.name)
        self.subject.seconds = time.monotonic() - started

    def _plan(self) -> Iterator[list[Trial]]:
        """Yield the trials, those of the same request together: streamed, and whole."""
        for probe in PROBES:
            for values in SAMPLES[: (1 if probe.quick else 0) if self._quick else probe.samples]:
                modes = (True, False) if probe.both else (True,)
                yield [Trial(probe=probe, values=values, streamed=streamed) for streamed in modes]

    def _look_for_tools(self, trial: Trial) -> None:
        """Find out whether the server has refused or ignored the tools: then more is asked in the other forms."""
        if "tools" in trial.dropped:
            self.subject.native_out = f"It refuses tools ({code(trial.error)})"
        elif (ignored := tools_ignored(trial)) and not any(one.wire.calls for one in self.subject.trials):
            self.subject.native_out = f"It ignores tools ({ignored})"
        if self.subject.native_out and self._quick:
            taught = [probe for probe in PROBES if probe.form in TEACHINGS]
            self._planned += [
                [Trial(probe=probe, values=values, streamed=True)] for values in SAMPLES[1:3] for probe in taught
            ]

    def _too_long(self) -> int:
        """Return the number of words that no window of this size holds; 0 where that is too many."""
        window = self.subject.window or (0 if self._quick or not self._server.local else LONGEST_WINDOW)
        return window * 5 // 4 if window <= LONGEST_WINDOW else 0

    def _progress(self, probe: str) -> Progress:
        of = sum(map(len, self._planned)) + AT_A_TIME * ROUNDS[self._quick] + 1
        return Progress(self._done, max(of, self._done), probe)

    async def _try(self, modes: list[Trial]) -> None:
        """Send a request in each way; if the answers differ, once more in each: by chance they do not do so twice."""
        for trial in modes:
            await self._send(trial)
        if len(modes) < 2 or modes[0].signature == modes[1].signature or not all(one.is_answered for one in modes):
            return
        if len(self.subject.again) >= 2 * AGAIN[self._quick]:
            return
        again = [Trial(probe=one.probe, values=one.values, streamed=one.streamed) for one in modes]
        for trial in again:
            await self._send(trial)
            self.subject.again.append(trial)
        if all(one.signature == other.signature for one, other in zip(modes, again, strict=True)):
            self.subject.pairs.append((modes[0], modes[1]))

    async def _send(self, trial: Trial) -> None:
        self.subject.trials.append(trial)
        while True:  # terminates: each round drops one more parameter, or gives room once
            body = self._body(trial)
            started = time.monotonic()
            data = await self._post(trial, body)
            trial.seconds = time.monotonic() - started
            self._done += 1
            if trial.status == 200:
                await asyncio.to_thread(trial.read, self._url, data)
                if trial.wire.finish == "length" and not trial.probe.is_cut and self._thinks(trial):
                    self._has_room = True
                    continue
                return
            text = data.decode("utf-8", "replace")
            trial.error = f"status {trial.status}: {excerpt(reason_in(text))}" if trial.status else text
            if refused := self._parameters.learn(trial.status, text, body, agent=True):
                trial.dropped |= refused
                continue
            if body.get("tools") and not trial.probe.fields and refuses_tools(trial.status, text):
                trial.dropped |= {"tools"}
            return

    def _thinks(self, trial: Trial) -> bool:
        return not self._has_room and bool(trial.wire.reasoning or "<think" in trial.wire.content)

    def _body(self, trial: Trial) -> dict[str, Any]:
        probe = trial.probe
        given = {"seed": 1, **filled(probe.fields, trial.values)}
        limit = ROOM if self._has_room and not probe.is_cut else probe.tokens
        body = {"model": self._server.model, "messages": messages_of(trial), "stream": trial.streamed}
        body |= {"tools": tools} if (tools := tools_of(probe)) else {}
        fields = self._parameters.fields(self._server.model, limit, 0.0, given)
        if not trial.streamed:
            fields.pop("stream_options", None)
        return body | fields

    async def _post(self, trial: Trial, body: Mapping[str, Any]) -> bytes:
        """Send a request and set the status of its answer, 0 without one. Return the body, or what happened.

        Raises CannotExamine.
        """
        try:
            async with asyncio.timeout(LIMIT_S):
                trial.status, data = await retried(partial(self._answer, encode(body)))
                return data
        except TimeoutError:
            error = f"no answer within {LIMIT_S:g} s"
        except httpx2.HTTPError as failure:
            error = f"no answer ({type(failure).__name__})"
        trial.status = 0
        return error.encode()

    async def _answer(self, content: bytes) -> tuple[int, bytes]:
        """Raises CannotExamine and httpx2.HTTPError."""
        if self._server.client.is_closed:
            raise CannotExamine(REMOVED)
        data = bytearray()
        async with self._server.client.stream("POST", self._url, content=content, headers=self._headers) as response:
            async with aclosing(response.aiter_bytes()) as blocks:
                async for block in blocks:
                    data += block
                    if len(data) > MOST_BYTES:
                        break
            return response.status_code, bytes(data)


def messages_of(trial: Trial) -> list[dict[str, Any]]:
    probe = trial.probe
    prompt = filled(probe.prompt, trial.values)
    if probe.form in (None, NATIVE):
        picture = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{RED}"}}
        content = [{"type": "text", "text": prompt}, picture] if probe.picture else prompt
        return [{"role": "user", "content": content}, *(with_result(probe, trial.values) if probe.result else ())]
    taught = opening(TAUGHT, call_form=probe.form, workspace=None, today=TODAY)
    sent: list[dict[str, Any]] = json.loads(json.dumps(wire_messages([*taught, Message("user", prompt)], native=False)))
    return sent
