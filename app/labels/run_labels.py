"""The labels of one run's conversation: what its calls may have read, what they have written, and where they apply.

The labels of a call are taken before it runs, and stored with its start, and again after it. What is looked at is what
the call could read, not what it did: the code of `python`, and a command whose words do not show its files, may have
read every file of the workspace (`app.labels.shell_reads`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from msgspec import Struct, field

from app.context.project_files import AGENTS, ProjectContext
from app.context.skills import WORKSPACE_FOLDER, skill_paths
from app.core.events import LabelsAdded
from app.core.labels import NO_LABELS, LabelPolicy, Labels, joined
from app.core.messages import AskedCall
from app.labels.contents import Contents
from app.labels.file_labels import FileLabels, written
from app.labels.shell_reads import files_read
from app.models.endpoints.failover import ModelRoute
from app.policy.gate import Gate
from app.policy.label_limits import limits_of
from app.storage.labels import LabelStore, SessionLabel
from app.storage.sessions import SessionStore
from app.transcript.conversation import Conversation
from app.workspace.scanner import Look
from parsing import Arguments
from tools.jobs.manager import Jobs
from tools.sandbox.bubblewrap import Bubblewrap
from tools.sandbox.sandbox import NoSandbox, Sandbox
from tools.tool import Tool

MARK, PATH, SERVER, CALL, MEMORY, CONTENT = "mark", "path", "server", "call", "memory", "content"  # sources
PATH_TOOLS = frozenset({"read_file", "write_file", "edit_file"})
COMMANDS = frozenset({"bash", "python"})  # tools that run code
JOB_TOOLS = frozenset({"job_status", "job_output", "job_cancel"})
# What these show is of the conversation itself, of the prompt, or of the web: nothing of the workspace.
OWN = frozenset(
    {
        *("recall_history", "read_result", "read_skill", "update_plan", "submit_plan", "ask_user"),
        *("create_document", "read_document", "update_document", "suggest_edits"),
        *("web_fetch", "web_search", "search_tools", "call_tool"),
        # These state the labels of what they show.
        *("delegate", "ask_model", "list_sessions", "read_session", "send_to_session"),
        *("remember", "recall_memory", "forget", "manage_sessions", "manage_memory", "search_files"),
        *("manage_jobs", "manage_schedules", "manage_server"),
        # These show nothing of conversations.
        *("manage_mcp", "manage_endpoints", "manage_models", "manage_tokens", "manage_webhooks"),
    }
)


def known_tools() -> frozenset[str]:
    """Return the tools of which it is known what they read; any other one of the server may read the workspace."""
    return PATH_TOOLS | COMMANDS | JOB_TOOLS | OWN | {"list_files"}


class LabelledSessions(LabelStore, SessionStore, Protocol):
    """The sessions and their labels."""


class LabelServices(Struct, frozen=True):
    """The parts of labels that all runs of a server share."""

    book: FileLabels
    store: LabelledSessions
    jobs: Jobs | None = None
    contents: Contents = Contents()

    @property
    def policy(self) -> LabelPolicy:
        return self.book.policy

    async def of_session(self, session: str) -> Labels:
        """Return the labels of a session, for what is made of it elsewhere: all if it is gone. Raises StoreFailed."""
        if await self.store.owner_of(session) is None:
            return frozenset(self.policy.names)
        return frozenset(row.label for row in await self.store.session_labels([session]))


class RunLabels(Struct):
    """The labels of one run. `boxed`: its commands reach no file but those of its own workspace."""

    services: LabelServices
    route: ModelRoute  # with the clearance of all requests of the run
    gate: Gate
    workspace: Path
    boxed: bool = True
    project: ProjectContext = ProjectContext()
    labels: Labels = NO_LABELS
    since: float = 0.0
    consented: set[tuple[str, str]] = field(default_factory=set)  # endpoint and label, for this run
    _conversation: Conversation | None = None
    _messages_seen: int = 0
    _of_calls: dict[str, Labels] = field(default_factory=dict)

    @property
    def book(self) -> FileLabels:
        return self.services.book

    async def enter(self, conversation: Conversation, marks: Iterable[str] = ()) -> None:
        """Take over the labels of the session; add a person's marks, and those of the project's instructions.

        Raises StoreFailed.
        """
        self._conversation = conversation
        rows = await self.services.store.session_labels([conversation.session])
        self.labels = joined(self.labels, (row.label for row in rows))
        self.since = max((row.at for row in rows), default=0.0)
        self._apply()
        self.add(marks, MARK)
        self.add(await asyncio.to_thread(self._of_project), PATH, "instructions of the workspace")
        await self.take_messages()

    async def take_messages(self) -> None:
        """Add the labels of new messages: of their contents, and of their files, which get those of the session."""
        if self._conversation is None:
            return
        messages = self._conversation.messages[self._messages_seen :]
        self._messages_seen += len(messages)
        if self.services.contents.rows:
            self.add(await asyncio.to_thread(self.services.contents.labels, messages, self.labels), CONTENT)
        paths = [one.path for message in messages for one in message.attachments if one.path]
        if paths:
            found = await asyncio.to_thread(lambda: joined(*(self.book.of_path(self.workspace, one) for one in paths)))
            self.add(found, PATH, "a file of a message")
            self._label_files(paths)

    def add(self, labels: Iterable[str], source: str, detail: str = "", call: str | None = None) -> None:
        """Add labels to the conversation for good, and report those that are new."""
        new = frozenset(labels) - self.labels
        conversation = self._conversation
        if not new or conversation is None:
            return
        self.labels, self.since = joined(self.labels, new), time.time()
        for label in sorted(new):
            conversation.record(
                SessionLabel(
                    conversation.session, label, source=source, detail=detail, run=conversation.run, at=self.since
                )
            )
        conversation.log_event(LabelsAdded(sorted(new), source, call))
        self._apply()

    def take_memories(self, labels: Iterable[str], call: str = "") -> None:
        """Add the labels of memories that this conversation gets: as the result of a call, or beside a message."""
        got = frozenset(labels)
        if call:
            self._of_calls[call] = joined(self._of_calls.get(call, ()), got)
        self.add(got, MEMORY, call=call or None)

    def keeps_model(self, labels: Iterable[str]) -> bool:
        """Return True if the model that would answer now may have these labels as well."""
        handle = self.route.current
        there = joined(self.labels, labels)
        return not self.services.policy.withheld(there - self.labels, handle.endpoint, handle.labels)

    def adopt(self, labels: Iterable[str]) -> None:
        """Add labels that were stored elsewhere, as those that a person has added to the session meanwhile."""
        self.labels, self.since = joined(self.labels, labels), time.time()
        self._apply()

    def _apply(self) -> None:
        if self.route.clearance:
            self.route.clearance.labels = self.labels
        self.gate.limit_by_labels(limits_of(self.services.policy, self.labels, self.since))

    async def begin_call(self, call: AskedCall, tool: Tool | None) -> None:
        """Add the labels of what a call may read, before it runs. Raises StoreFailed."""
        await self._take(call, tool)
        if tool is not None and tool.may_write and self.labels and self._conversation:
            for change in self.book.begin_write(self.workspace, call.id, self.labels):
                self._conversation.record(change)

    async def end_call(self, call: AskedCall, tool: Tool | None) -> None:
        """Add what may have been there to read since it began; a job that it has begun goes on writing."""
        await self._take(call, tool)
        if self.labels and call.arguments.get("background") is True:
            self._label_files([""])

    async def _take(self, call: AskedCall, tool: Tool | None) -> None:
        found, source = await self.of_call(call, tool)
        self._of_calls[call.id] = joined(self._of_calls.get(call.id, ()), found)
        self.add(found, source, call.name, call.id)

    def of_result(self, call: str) -> Labels:
        """Return the labels of the result of a call."""
        return self._of_calls.get(call, NO_LABELS)

    def state(self, call: AskedCall, labels: Iterable[str]) -> None:
        """Add labels that a tool has stated of its result."""
        stated = frozenset(labels)
        self._of_calls[call.id] = joined(self._of_calls.get(call.id, ()), stated)
        self.add(stated, CALL, call.name, call.id)

    async def of_call(self, call: AskedCall, tool: Tool | None) -> tuple[Labels, str]:
        """Return the labels of what a call may read, and their source. Raises StoreFailed."""
        if tool is None or tool.handed:
            return NO_LABELS, CALL
        if server := _server_of(tool):
            return self.services.policy.of_server(server), SERVER
        if call.name in JOB_TOOLS:
            return await self._of_jobs(call.arguments), CALL
        if call.name in OWN:
            return NO_LABELS, CALL
        if call.name not in known_tools():  # it may show what other conversations have
            return frozenset(self.services.policy.names), CALL
        return await asyncio.to_thread(self._of_files, call.name, call.arguments), PATH

    def _of_files(self, name: str, arguments: Arguments) -> Labels:
        match name, arguments.get("path"):
            case "list_files", path:
                return self._of_listing(path if isinstance(path, str) and path else ".", arguments)
            case "bash", _ if isinstance(command := arguments.get("command"), str):
                return self._of_command(command)
            case _, str(path) if name in PATH_TOOLS:
                return self.book.of_path(self.workspace, path)
        return self._reach() if name not in PATH_TOOLS else NO_LABELS

    def _of_listing(self, path: str, arguments: Mapping[str, Any]) -> Labels:
        # A pattern looks at any depth: where labelled files lie below, their names may be among those that it finds.
        if arguments.get("pattern"):
            return self.book.below(self.workspace, path)
        return self.book.of_folder(self.workspace, path)

    def _of_command(self, command: str) -> Labels:
        reads = files_read(command)
        if reads is None or not all(self.book.is_plain(self.workspace, one.path) for one in reads):
            return self._reach()
        return joined(
            *((self.book.of_folder if one.lists else self.book.of_path)(self.workspace, one.path) for one in reads)
        )

    def _reach(self) -> Labels:
        """Return the labels of all that code can read here."""
        return self.book.present(self.workspace if self.boxed else self.book.root)

    async def _of_jobs(self, arguments: Arguments) -> Labels:
        """Return the labels of a job's output: those of its conversation, and of what its command may read."""
        jobs = self.services.jobs
        wanted = arguments.get("id")
        found = [job for job in await jobs.all_of(self.gate.principal.name) if job.id == wanted] if jobs else []
        if not found:
            return NO_LABELS
        here = await asyncio.to_thread(self._of_command, found[0].command)
        return joined(here, await self.services.of_session(found[0].session))

    def _of_project(self) -> Labels:
        paths = [AGENTS] if self.project.agents else []
        paths += skill_paths(self.workspace, WORKSPACE_FOLDER) if self.project.skills else []
        return joined(*(self.book.of_path(self.workspace, path) for path in paths))

    def end_write(self, call: str, before: Look | None, after: Look) -> None:
        """Give what a call has written the labels of the conversation: everything, if not everything was looked at."""
        if not self.labels or self._conversation is None:
            return
        if before is None or not (before.is_whole and after.is_whole):
            self._label_files([""])
        else:
            self._label_files(written(before.entries, after.entries))
        for change in self.book.end_write(call):
            self._conversation.record(change)

    def _label_files(self, paths: Sequence[str]) -> None:
        if self.labels and self._conversation:
            for change in self.book.label_files(self.workspace, paths, self.labels):
                self._conversation.record(change)


def _server_of(tool: Tool) -> str:
    """Return the MCP server that a call of the tool reaches, if it reaches one."""
    if tool.origin:
        return tool.origin.server
    return tool.through.removeprefix("mcp__").rpartition("__")[0] if tool.through.startswith("mcp__") else ""


NO_PROJECT = ProjectContext()


def labels_of_run(
    services: LabelServices | None,
    route: ModelRoute,
    gate: Gate,
    sandbox: Sandbox | NoSandbox,
    project: ProjectContext = NO_PROJECT,
) -> RunLabels | None:
    """Return the labels of a run on this route. Outside of bubblewrap its commands may reach all workspaces."""
    if services is None:
        return None
    boxed = isinstance(sandbox, Bubblewrap)
    return RunLabels(services, route, gate, gate.policy.workspace, boxed=boxed, project=project)
