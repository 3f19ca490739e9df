"""What all tests share: the event loop they run on, how many examples are tried, and which run one after the other."""

from __future__ import annotations

import gc
import os
import sys
from collections import Counter
from collections.abc import Generator
from functools import cache
from inspect import iscoroutinefunction
from pathlib import Path
from typing import TYPE_CHECKING
from zlib import crc32

import pytest
from hypothesis import settings
from xdist.scheduler import LoadScopeScheduling

from tests.support.nightly import NIGHTLY, TOO_LONG, USUAL_DATABASE

if TYPE_CHECKING:
    from tests.support.databases.postgres import Cluster
    from tests.support.page.chromium import Chromium

# Examples are the same in each `make test`, and others each night. Neither is timed: a loaded machine is not a bug.
settings.register_profile("usual", derandomize=True, deadline=None, max_examples=40)
settings.register_profile("nightly", derandomize=False, deadline=None, print_blob=True)
settings.load_profile("nightly" if NIGHTLY else "usual")

# Each starts llama.cpp, which takes every core that it finds: two at a time would only take them from each other.
WITH_A_MODEL = frozenset(
    {
        "test_counted_requests",
        "test_embedded_model",
        "test_prompt",
        "test_anthropic_real",
        "test_served_models",
        "test_two_models",
        "test_attachments_real",
        "test_context_real",
        "test_discipline_model",
        "test_guards",
        "test_newcomer",
        "test_first_visit",
        "test_prefix",
        "test_served_models_over_http",
        "test_model_downloads",
        "test_page_get_model",
    }
)
MODEL_GROUP = "with a model"
HOUSE_GROUP = "tests/house"  # they read all sources, once
# The longest begin first, so that all workers end together.
LONGEST = (
    *(MODEL_GROUP, "test_replicas_faults", "test_deploy_fire", HOUSE_GROUP, "test_recipes", "test_escape"),
    *("test_page_approvals", "test_jobs", "test_homes", "test_search", "test_native_arguments"),
    *("test_approvals", "test_mcp_sdk", "test_axe", "test_process"),
    *("test_resume", "test_text_calls", "test_page_people", "test_runs"),
    *("test_mcp_faults", "test_cards", "test_terminal_asking", "test_box_end"),
)


# All that is collected lives as long as the process: to look through it again and again takes half of the collection.
gc.disable()


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Let each worker begin with another part of the files.

    In a fresh clone all must be compiled, which takes three times as long as the rest of the collection: so each is
    compiled once, and not by all workers at the same time.
    """
    report = yield
    number, count = (os.environ.get(f"PYTEST_XDIST_WORKER{name}") for name in ("", "_COUNT"))
    if number and number[2:].isdecimal() and count and isinstance(collector, pytest.Directory) and report.result:
        first = len(report.result) * int(number[2:]) // int(count)
        report.result = report.result[first:] + report.result[:first]
    return report


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def replayed(monkeypatch: pytest.MonkeyPatch) -> Generator[None, None, None]:
    """Have the runs of a test recorded, and replayed when its servers end: they must go the same way."""
    from tests.support.replays import replayed_at_the_end

    outcomes = replayed_at_the_end(monkeypatch)
    yield
    assert "same" in [one.state for one in outcomes]
    assert [one for one in outcomes if one.state == "otherwise"] == []


@pytest.fixture(scope="session")
def postgres() -> Generator[Cluster, None, None]:
    """A cluster of PostgreSQL, made when the first test needs it; skipped where there is none."""
    from tests.support.databases.postgres import DATABASES, cluster

    with cluster() as made:
        DATABASES.cluster = made
        yield made
        DATABASES.cluster = None


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest) -> str:
    """The database that a test is for: it runs once on each."""
    if request.param == "postgres":
        request.getfixturevalue("postgres")
    return str(request.param)


@pytest.fixture(scope="module", params=["sqlite", "postgres", "replicas"])
def servers(request: pytest.FixtureRequest) -> str:
    """The servers that a test is for: one on each database, and three that its client asks in turn."""
    if request.param != "sqlite":
        request.getfixturevalue("postgres")
    return str(request.param)


@pytest.fixture(scope="session", autouse=True)
def usual_database(request: pytest.FixtureRequest) -> None:
    """Make the cluster at once where all tests are to use it."""
    if USUAL_DATABASE != "sqlite":
        request.getfixturevalue("postgres")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Choose the database before any fixture opens one."""
    params = item.callspec.params if hasattr(item, "callspec") else {}
    chosen = str(params.get("servers", params.get("database", USUAL_DATABASE)))
    if "tests.support.databases.postgres" in sys.modules or chosen != "sqlite":
        from tests.support.databases.postgres import DATABASES

        DATABASES.kind = chosen


@pytest.fixture(scope="session")
def chromium() -> Generator[Chromium, None, None]:
    """For tests of the page, which run on the loop that their browser lives on."""
    from tests.support.page.chromium import chromium  # what drives it takes its time to import

    with chromium() as made:
        yield made


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    if "chromium" not in pyfuncitem.funcargs or not iscoroutinefunction(pyfuncitem.obj):
        return None
    made: Chromium = pyfuncitem.funcargs["chromium"]  # type: ignore[assignment]
    made.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}))
    return True


@pytest.fixture(scope="module", autouse=True)
def one_core_for_a_model(request: pytest.FixtureRequest) -> Generator[None, None, None]:
    """Let the other workers have the rest: llama.cpp's threads wait for each other, at twice the price in all."""
    if group_of(request.node.nodeid) != MODEL_GROUP or sys.platform != "linux":
        yield
        return
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(cores)})
    yield
    os.sched_setaffinity(0, cores)


def group_of(nodeid: str) -> str:
    """The tests of a file stay together, because they share what is dear to make."""
    return group_of_file(nodeid.partition("::")[0])


@cache
def group_of_file(file: str) -> str:
    if file.startswith(HOUSE_GROUP):
        return HOUSE_GROUP
    module = Path(file).stem  # the only one of its name
    return MODEL_GROUP if module in WITH_A_MODEL else module


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Others follow as if shuffled, in the same order each time: so what waits runs beside what computes."""
    rank = {name: number for number, name in enumerate(LONGEST)}

    def place(item: pytest.Item) -> tuple[int, int, str]:
        group, file = group_of(item.nodeid), item.nodeid.partition("::")[0]
        return rank.get(group, len(rank)), crc32(group.encode()), file

    items.sort(key=place)
    for item in items:
        if group_of(item.nodeid) == MODEL_GROUP:
            item.add_marker(pytest.mark.model)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> Generator[None, None, None]:
    """Say last, where it is seen, how many tests were skipped and why, and what tests have recorded.

    Most are skipped for want of something to install.
    """
    yield
    whys = Counter(one.longrepr[2].removeprefix("Skipped: ") for one in terminalreporter.getreports("skipped"))
    if missing := {why: count for why, count in whys.most_common() if why != TOO_LONG}:
        terminalreporter.section(f"{sum(missing.values())} tests skipped, because ...", yellow=True)
        for why, count in missing.items():
            terminalreporter.line(f"{count:5}  {why}")
    for report in terminalreporter.getreports("passed"):
        for what, those in report.user_properties:
            terminalreporter.line(f"{what}: {those}")


class Groups(LoadScopeScheduling):  # type: ignore[misc]
    """Give each worker whole groups, in the order of collection."""

    def _split_scope(self, nodeid: str) -> str:
        return group_of(nodeid)


@pytest.hookimpl(optionalhook=True)  # `-p no:xdist`
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> Groups:
    config.option.loadscopereorder = False
    return Groups(config, log)
