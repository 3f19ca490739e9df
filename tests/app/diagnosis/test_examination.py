"""Examinations of fake servers: each reported fault is named, and a right server is not accused."""

from __future__ import annotations

import asyncio

import pytest

from app.diagnosis.examination import examine
from app.diagnosis.report import Report
from tests.support.models.chatting import chat_with
from tests.support.models.engines import FAULTY, RIGHT, Bend, engine


async def report_on(bend: Bend, *, quick: bool = True) -> Report:
    async with engine(bend) as server, chat_with(server) as chat:
        async for step in examine(chat, quick=quick):
            if isinstance(step, Report):
                return step
    raise AssertionError("no report")


@pytest.mark.parametrize("name", RIGHT)
def test_a_right_server_is_not_accused(name: str) -> None:
    assert asyncio.run(report_on(RIGHT[name])).defects == []


@pytest.mark.parametrize("place", FAULTY)
def test_a_reported_fault_is_named(place: str) -> None:
    code, bend = FAULTY[place]
    report = asyncio.run(report_on(bend))
    assert code in [found.code for found in report.defects]
