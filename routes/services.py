"""Everything a server is made of, opened in order and closed in reverse."""

from __future__ import annotations

import asyncio
import fcntl
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path

from starlette.requests import Request

from app.agent import Agent
from app.follow_up import ROUNDS, FollowUps
from app.gate import decide
from app.housekeeping import Housekeeping
from app.journal import Journal
from app.pause import Switch
from app.people import LOCAL_USER, Principal, Role
from app.prompt import opening
from app.provider import Provider
from app.providers import choose_provider
from app.runs import Key, NotFound, Runs, Turn
from app.settings import Settings
from app.store import Store, StoreFailed
from app.store.sqlite import SQLiteStore
from routes.errors import Refused
from routes.requests import ChatRequest
from tools.catalogue import TOOLS
from tools.job_records import Job
from tools.jobs import Jobs
from tools.sandbox import NoSandbox, Sandbox, find_sandbox
from tools.tool import Context, Tool
from tools.toolbox import Toolbox

DATABASE = "dragoman.db"
JOBS = "jobs"


@dataclass(slots=True)
class Services:
    """One server's collaborators. `about_model` is a sentence: which model answers, and why that one."""

    settings: Settings
    store: Store
    runs: Runs
    switch: Switch
    provider: Provider
    about_model: str
    sandbox: Sandbox | NoSandbox
    jobs: Jobs
    tools: Sequence[Tool] = TOOLS

    def toolbox(self, principal: Principal, names: Sequence[str] | None = None) -> Toolbox:
        """The tools `principal` may use; `names` can only narrow them. Raises Refused for a name that is not there."""
        whole = Toolbox(self.tools, partial(decide, principal))
        if names is None:
            return whole
        offered = {tool.name: tool for tool in whole.offered}
        if unknown := [name for name in names if name not in offered]:
            message = f"tools: there is no {', '.join(map(ascii, unknown[:5]))}; there are {', '.join(offered)}"
            raise Refused(422, "unknown_tool", message)
        return Toolbox([offered[name] for name in names], partial(decide, principal))

    def agent(self, principal: Principal, wish: ChatRequest) -> Agent:
        """A new agent for one run. Raises Refused for a model or tool that is not there."""
        if wish.model not in (None, self.provider.model):
            message = f"model: there is no {wish.model[:80]!a}; there is {self.provider.model}"
            raise Refused(422, "unknown_model", message)
        toolbox = self.toolbox(principal, wish.tools)
        context = Context(
            self.settings.workspace,
            self.settings.tool_time_limit_s,
            self.sandbox,
            jobs=self.jobs,
            principal=principal.name,
        )
        return Agent(
            self.provider,
            toolbox,
            context,
            lambda: opening(
                toolbox.offered,
                teach_fences=self.provider.teach_fences,
                workspace=self.settings.workspace,
                now=datetime.now().astimezone(),
            ),
            wish.max_rounds or self.settings.max_rounds,
            self.switch.check,
            wish.inactivity_s,
        )

    async def begin_follow_up(self, job: Job, message: str) -> None:
        """Tell a session of its job's end, once. Raises NotFound, SessionBusy, Paused, Stopping, StoreFailed."""
        principal = await principal_named(self.store, job.principal)
        rounds = min(ROUNDS, self.settings.max_rounds)
        agent = self.agent(principal, ChatRequest(message=message, max_rounds=rounds))
        key = Key(f"follow-up\n{job.id}", "")  # no request can have it: theirs are printable
        await self.runs.start(agent, principal, Turn(message, job.session, key=key))


Choose = Callable[[Settings], Awaitable[tuple[Provider, str]]]
OpenStore = Callable[[Path], Awaitable[Store]]


async def chosen_by(settings: Settings) -> tuple[Provider, str]:
    """The provider that the settings name or that is found, and a sentence that says so."""
    key = settings.model_key
    return await choose_provider(
        model_url=settings.model_url,
        model=settings.model,
        key=key.get_secret_value() if key else None,
        tool_calls=settings.tool_calls,
        inactivity_s=settings.model_inactivity_s,
        temperature=settings.model_temperature,
    )


@asynccontextmanager
async def open_services(
    settings: Settings, choose: Choose = chosen_by, open_store: OpenStore = SQLiteStore.open
) -> AsyncGenerator[Services, None]:
    """Raises StoreFailed when the data directory cannot be used."""
    async with AsyncExitStack() as stack:
        stack.enter_context(only_server(settings.data_dir))
        store = await open_store(settings.data_dir / DATABASE)
        stack.push_async_callback(store.close)
        switch = Switch(store)
        await switch.load()
        runs = Runs(store, await stack.enter_async_context(Journal(store)), switch)
        await runs.recover()
        housekeeping = Housekeeping(store, settings.log_join_after_s, settings.keep_days)
        stack.push_async_callback(ended, asyncio.create_task(housekeeping.for_ever(), name="housekeeping"))
        provider, about_model = await choose(settings)
        stack.push_async_callback(provider.close)
        stack.push_async_callback(runs.close)
        made(settings.workspace, "workspace")
        sandbox = find_sandbox(hidden=[settings.data_dir], unsafe=settings.unsafe_no_sandbox)
        jobs = Jobs(
            settings.data_dir / JOBS,
            limit=settings.job_limit,
            time_limit_s=settings.job_time_limit_s,
            follow_up=settings.job_follow_up,
        )
        stack.push_async_callback(jobs.close)
        services = Services(settings, store, runs, switch, provider, about_model, sandbox, jobs)
        follow_ups = FollowUps(jobs, runs, services.begin_follow_up, switch.unpaused)
        await jobs.open(follow_ups.on_end if settings.job_follow_up else None)
        yield services


async def ended(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait([task])


@contextmanager
def only_server(data_dir: Path) -> Iterator[None]:
    """Two servers on one data directory would each take the other's runs for lost ones. Raises StoreFailed."""
    made(data_dir, "data_dir")
    try:
        lock = (data_dir / "lock").open("w")
    except OSError as error:
        raise Unusable(data_dir, "data_dir", error) from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            message = f"Another dragoman uses {data_dir}. Stop it, or give this one another DRAGOMAN_DATA_DIR."
            raise StoreFailed(message) from None
        yield


class Unusable(StoreFailed):
    """A folder that a setting names cannot be used."""

    def __init__(self, folder: Path, setting: str, error: OSError) -> None:
        advice = f"Set DRAGOMAN_{setting.upper()} to a folder that can be written."
        super().__init__(f"The {setting} {folder} cannot be used: {error.strerror}. {advice}")


def made(folder: Path, setting: str) -> None:
    """Make the folder if it is not there. Raises Unusable."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)  # what a command leaves there is not for all
    except OSError as error:
        raise Unusable(folder, setting, error) from error


def services_of(request: Request) -> Services:
    services = request.app.state.services
    assert isinstance(services, Services)
    return services


def asker(request: Request) -> Principal:
    """Who asks: `Access` has put it there."""
    principal = request.state.principal
    assert isinstance(principal, Principal)
    return principal


async def principal_named(store: Store, name: str) -> Principal:
    """Someone with the rights of today, whoever asks. Raises NotFound."""
    tokens = await store.tokens()
    if not tokens and name == LOCAL_USER.name:
        return LOCAL_USER
    for row in tokens:
        if row.name == name:
            return Principal(row.name, Role(row.role))
    raise NotFound(f"{name} has no token any more.")
