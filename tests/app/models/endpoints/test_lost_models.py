"""Models whose answers break off: another one is named, and gets the next requests of the run."""

from __future__ import annotations

from contextlib import aclosing

import pytest

from app.core.labels import Clearance, LabelPolicy, LabelRule
from app.core.provider import FallbackUsed, ProviderFailed
from app.models.endpoints.failover import ModelRoute
from app.models.scripted import Raise, Reply
from tests.support.models.targets import ASKED, Time, fails, heard, model, said

pytestmark = pytest.mark.anyio
LOST = ProviderFailed("model_cut", "The connection was lost.", retryable=True)
NO_CREDIT = ProviderFailed("model_auth", "No credit is left.", retryable=False, status=402)
REFUSED = ProviderFailed("model_rejected", "It is no valid request.", retryable=False, status=400)


def half(failure: ProviderFailed = LOST) -> Reply:
    return ["Half", Raise(failure)]


async def failure_of(route: ModelRoute) -> ProviderFailed:
    with pytest.raises(ProviderFailed) as failed:
        async with aclosing(route.stream(ASKED)) as pieces:
            async for _ in pieces:
                pass
    return failed.value


async def test_the_run_stays_with_the_model_that_goes_on_until_that_is_lost() -> None:
    time = Time()
    first, second = model(half(LOST), "Back.", name="a"), model("More.", half(NO_CREDIT), name="b")
    route = time.route(time.handle(first, time.server("x")), time.handle(second, time.server("y")))
    assert (await failure_of(route)).successor == (switch := FallbackUsed("x/a", "y/b", "model_cut"))
    assert route.answers == "x/a" and route.model == "b", "of the request that failed, and of the next one"
    assert switch in (pieces := await heard(route)) and said(pieces) == "More."
    assert (await failure_of(route)).successor == FallbackUsed("y/b", "x/a", "model_auth")
    assert said(pieces := await heard(route)) == "Back." and switch not in pieces
    assert time.waits == [], "no server is passed over for others"
    assert not route.handles[0].server.cooldown_of("a")


async def test_a_side_query_does_not_report_the_switch_again() -> None:
    time = Time()
    first, second = model(half(), name="a"), model("Notes.", "More.", name="b")
    route = time.route(time.handle(first, time.server("x")), time.handle(second, time.server("y")))
    switch = (await failure_of(route)).successor
    aside = await heard(route.apart())
    assert said(aside) == "Notes." and not any(isinstance(piece, FallbackUsed) for piece in aside)
    assert switch in await heard(route), "of the answer itself"


async def test_a_lost_model_is_asked_when_the_other_does_not_answer() -> None:
    time = Time()
    route = time.route(
        time.handle(model(half(), "Back.", name="a")),
        time.handle(model(fails(404, "model_not_found", retryable=False), name="b"), time.server("y")),
    )
    assert (await failure_of(route)).successor is not None
    pieces = await heard(route)
    assert FallbackUsed("y/b", "local/a", "model_not_found") in pieces and said(pieces) == "Back."


@pytest.mark.parametrize("failure", [REFUSED, ProviderFailed("model_context", "Too long.", retryable=False)])
async def test_a_request_that_all_would_refuse_has_no_successor(failure: ProviderFailed) -> None:
    time = Time()
    route = time.route(time.handle(model(half(failure))), time.handle(model("never"), time.server("y")))
    assert (await failure_of(route)).successor is None


async def test_models_that_are_alone_cool_down_or_may_not_have_the_labels_are_no_successors() -> None:
    time = Time()
    alone = time.route(time.handle(model(half())))
    assert (await failure_of(alone)).successor is None
    cooling = time.handle(model("never", name="b"), time.server("y"))
    cooling.server.health.start(None, 60.0, "model_down")
    assert (await failure_of(time.route(time.handle(model(half())), cooling))).successor is None
    route = time.route(time.handle(model(half())), time.handle(model("never", name="b"), time.server("y")))
    policy = LabelPolicy(rules={"secret": LabelRule(label="secret", endpoints=("local",))})
    route.clearance = Clearance(policy, frozenset({"secret"}))
    assert (await failure_of(route)).successor is None
