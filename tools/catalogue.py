"""The catalogue of built-in tools, one row each. Descriptions are short, because a small model reads all of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tools.base.access import KINDS
from tools.base.rights import Column, Risk, Role
from tools.base.workspace import CallPath, Folder, ReadFile, WrittenFile
from tools.builtin.ask_user import ask_user
from tools.builtin.delegation import DELEGATE, ask_model, delegate, model_reached
from tools.builtin.document_pages import read_page
from tools.builtin.documents import create_document, read_document, suggest_edits, update_document
from tools.builtin.files import edit_file, off_the_loop, state_of_file, write_file
from tools.builtin.job_tools import backgroundable, job_cancel, job_output, job_status, unmarked
from tools.builtin.list_files import list_files
from tools.builtin.memory import forget, recall_memory, remember
from tools.builtin.outbound_effects import file_left, hosts_reached, nothing_lost, nothing_to_reach, request_sent
from tools.builtin.plan import STATES, update_plan, with_plain_steps
from tools.builtin.read_result import read_result
from tools.builtin.read_skill import read_skill
from tools.builtin.recall_history import recall_history
from tools.builtin.search_files import search_files
from tools.builtin.session_tools import SEND, list_sessions, read_session, send_to_session
from tools.builtin.shell import running
from tools.builtin.submit_plan import submit_plan, with_texts
from tools.builtin.web_fetch import WebFetch
from tools.builtin.web_search import not_configured
from tools.shell_policy.network_needs import request_network
from tools.tool import NO_PATHS, Run, Tool, answering
from tools.web.egress import NETWORK, normalise_network

_TEXT = {"type": "string"}
_TEXTS = {"type": "array", "items": _TEXT}
LARGE_WINDOW = 16_384  # tokens; the smallest model repeats its calls when more tools are described
_FROM_0 = {"type": "integer", "minimum": 0}
_FROM_1 = {"type": "integer", "minimum": 1}
_HOSTS = {"type": ["boolean", "array"], "items": {"type": "string"}}  # as tools.web.egress reads them
# Described once, for models with native calls: the smallest model repeats calls when its line is longer.
_DESCRIBED_HOSTS = _HOSTS | {"description": "true, or hosts such as example.org"}


def _object(required: dict[str, Any], optional: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"type": "object", "properties": required | (optional or {}), "required": list(required)}


_REPLACEMENT = _object({"document": _TEXT, "old": _TEXT, "new": _TEXT})
_STEP = _object({"step": _TEXT, "state": {"type": "string", "enum": [*STATES]}})


def _confined(
    name: str,
    description: str,
    parameters: dict[str, Any],
    risk: Risk,
    run: Run,
    *,
    role: Role = Role.USER,
    paths: Mapping[str, type[CallPath]] = NO_PATHS,
    **more: Any,
) -> Tool:
    """A tool that acts only in the workspace and in the sandbox, except for what its `leaves` names."""
    if WrittenFile in paths.values():
        more = {"leaves": file_left, "binds": state_of_file} | more
    return Tool(name, description, parameters, risk, run, role=role, confined=True, paths=paths, **more)


def _reading(name: str, description: str, parameters: dict[str, Any], run: Run, **more: Any) -> Tool:
    """Such a tool that changes no file: for guests, too."""
    return _confined(name, description, parameters, Risk.READ, run, role=Role.GUEST, **more)


TOOLS = (
    _confined(
        "bash",
        "Run a shell command. network: true for the network. First line #!bg: in the background.",
        _object({"command": _TEXT}, {"background": {"type": "boolean"}, NETWORK: _DESCRIBED_HOSTS}),
        Risk.EXECUTE,
        backgroundable(running("bash", "command")),
        normalise=lambda arguments: request_network(unmarked(arguments)),
        columns={"command": Column.COMMAND, NETWORK: Column.ADDRESS},
        leaves=hosts_reached,
        loses_nothing=nothing_lost,
        hopeless=nothing_to_reach,
    ),
    _confined(
        "python",
        "Run Python code; print what you need.",
        _object({"code": _TEXT}, {NETWORK: _HOSTS}),
        Risk.EXECUTE,
        running("python3", "code"),
        normalise=normalise_network,
        columns={"code": Column.COMMAND, NETWORK: Column.ADDRESS},
        leaves=hosts_reached,
    ),
    _reading(
        "read_file",
        "Read a text file from line offset.",
        _object({"path": _TEXT}, {"offset": _FROM_1}),
        read_page,
        paths={"path": ReadFile},
    ),
    _confined(
        "write_file",
        "Create or replace a file.",
        _object({"path": _TEXT, "content": _TEXT}),
        Risk.WRITE,
        off_the_loop(write_file),
        paths={"path": WrittenFile},
    ),
    _confined(
        "edit_file",
        "Replace old, which occurs exactly once in the file, by new.",
        _object({"path": _TEXT, "old": _TEXT, "new": _TEXT}),
        Risk.WRITE,
        off_the_loop(edit_file),
        paths={"path": WrittenFile},
    ),
    _reading(
        "list_files",
        "List a directory, or the files below it that match a pattern such as *.py.",
        _object({}, {"path": _TEXT, "pattern": _TEXT}),
        off_the_loop(list_files),
        paths={"path": Folder},
    ),
    _reading("job_status", "Show background jobs.", _object({}, {"id": _TEXT}), job_status),
    _reading(
        "job_output",
        "Read a job's output from byte offset, or its last lines.",
        _object({"id": _TEXT}, {"offset": _FROM_0, "tail": _FROM_1}),
        job_output,
    ),
    _confined("job_cancel", "Stop a job.", _object({"id": _TEXT}), Risk.WRITE, job_cancel),
    _reading(
        "recall_history",
        "Find earlier words of this conversation.",
        _object({"query": _TEXT}, {"limit": _FROM_1}),
        recall_history,
    ),
    _reading(
        "read_result",
        "Read the rest of an earlier call's result.",
        _object({"call": _TEXT}, {"offset": _FROM_0, "size": _FROM_1}),
        read_result,
    ),
    _reading(
        "ask_user",
        "Ask the person a question that only they can answer.",
        _object({"question": _TEXT}, {"choices": _TEXTS}),
        answering(ask_user),
        needs_person=True,
        least_window=LARGE_WINDOW,
    ),
    _reading(
        "update_plan",
        "Keep the plan of a longer task: all its steps, each pending, active or done.",
        _object({"steps": {"type": "array", "items": _STEP}}),
        answering(update_plan),
        normalise=with_plain_steps,
        least_window=LARGE_WINDOW,
    ),
    _reading(
        "create_document",
        "Write a longer text or code, which the person reads and edits beside the chat. kind: markdown, plain or a "
        "language.",
        _object({"title": _TEXT, "content": _TEXT}, {"kind": _TEXT}),
        answering(create_document),
        least_window=LARGE_WINDOW,
        in_turn=True,
        keeps=True,
    ),
    _reading(
        "update_document",
        "Replace old, which occurs once in a document, by new.",
        _REPLACEMENT,
        answering(update_document),
        least_window=LARGE_WINDOW,
        in_turn=True,
        keeps=True,
    ),
    _reading(
        "suggest_edits",
        "Suggest such a replacement to the person.",
        _object(_REPLACEMENT["properties"], {"reason": _TEXT}),
        answering(suggest_edits),
        least_window=LARGE_WINDOW,
        in_turn=True,
        keeps=True,
    ),
    _reading(
        "read_document",
        "Read a document as it is now, or list all.",
        _object({}, {"document": _TEXT, "offset": _FROM_0}),
        answering(read_document),
        least_window=LARGE_WINDOW,
        in_turn=True,
    ),
    Tool(
        "web_fetch",
        "Read a web page as text.",
        _object({"url": _TEXT}, {"offset": _FROM_0}),
        Risk.NETWORK,
        WebFetch(),
        role=Role.USER,
        untrusted=True,
        columns={"url": Column.ADDRESS},
        leaves=request_sent,
    ),
)

# Beside the others in runs that plan first.
SUBMIT_PLAN = _reading(
    "submit_plan",
    "Show the steps of your plan to the person. Once they accept it, all tools can be used.",
    _object({"steps": _TEXTS | {"minItems": 1}}),  # a person is not asked about an empty plan
    answering(submit_plan),
    approval="always",
    normalise=with_texts,
    plans=True,
)
# Where there are skills.
READ_SKILL = _reading("read_skill", "Read a skill.", _object({"name": _TEXT}), answering(read_skill))
# Where a search engine is configured, which `with_backend` adds.
WEB_SEARCH = Tool(
    "web_search",
    "Search the web for pages.",
    _object({"query": _TEXT}, {"count": _FROM_1}),
    Risk.NETWORK,
    answering(not_configured),
    role=Role.USER,
    untrusted=True,
    columns={"query": Column.CONTENT},
)
# Where folders of knowledge are named.
SEARCH_FILES = _reading(
    "search_files",
    "Search files by words and meaning. Cite the places of what you use, as `notes.md:12-20`.",
    _object({"query": _TEXT}, {"folder": _TEXT, "limit": _FROM_1}),
    search_files,
    paths={"folder": Folder},
    least_window=LARGE_WINDOW,
)
# Where there is a memory over conversations.
MEMORY = (
    _reading(
        "remember",
        "Keep for later conversations what the person says of themselves, their work and wishes: one sentence.",
        _object({"text": _TEXT}, {"kind": {"type": "string", "enum": [*KINDS]}}),
        answering(remember),
        least_window=LARGE_WINDOW,
        in_turn=True,
        keeps=True,
    ),
    _reading(
        "recall_memory",
        "Find what earlier conversations with the person have left in memory.",
        _object({"query": _TEXT}, {"limit": _FROM_1}),
        recall_memory,
        least_window=LARGE_WINDOW,
        in_turn=True,
    ),
    _confined(
        "forget",
        "Delete a memory. Give its id and text as recall_memory shows them; the person is asked.",
        _object({"id": _TEXT, "text": _TEXT}),
        Risk.WRITE,
        answering(forget),
        role=Role.GUEST,
        approval="always",
        least_window=LARGE_WINDOW,
        in_turn=True,
    ),
)
# Where helpers are switched on.
HELPER_TOOLS = (
    _confined(
        DELEGATE,
        "Have a helper do a task on its own; several in one reply work side by side. It sees only the task: write all "
        "it needs. It has your tools, or only those in tools.",
        _object({"task": _TEXT}, {"tools": _TEXTS, "model": _TEXT}),
        Risk.READ,  # all that it does passes the gate itself, and made again it finds the helper that it has begun
        delegate,
        columns={"task": Column.CONTENT, "tools": Column.PLAIN, "model": Column.PLAIN},
        leaves=model_reached,
        least_window=LARGE_WINDOW,
    ),
    _confined(
        "ask_model",
        "Ask another model one question. It sees only the question.",
        _object({"question": _TEXT}, {"model": _TEXT}),
        Risk.READ,
        answering(ask_model),
        columns={"question": Column.CONTENT, "model": Column.PLAIN},
        leaves=model_reached,
        least_window=LARGE_WINDOW,
    ),
)
# Where session tools are switched on.
SESSION_TOOLS = (
    _confined(
        "list_sessions",
        "List the person's other conversations, or those that hold all words of query.",
        _object({}, {"query": _TEXT}),
        Risk.READ,
        list_sessions,
        least_window=LARGE_WINDOW,
    ),
    _confined(
        "read_session",
        "Read another conversation from character offset.",
        _object({"session": _TEXT}, {"offset": _FROM_0}),
        Risk.READ,
        read_session,
        least_window=LARGE_WINDOW,
    ),
    _confined(
        SEND,
        'Send a message to another conversation, whose model acts on it. session "new" begins one.',
        _object({"session": _TEXT, "message": _TEXT}),
        Risk.WRITE,
        answering(send_to_session),
        least_window=LARGE_WINDOW,
        in_turn=True,
    ),
)

# Every built-in tool, also those that are offered only where a setting turns them on.
CATALOGUE = (*TOOLS, SUBMIT_PLAN, READ_SKILL, WEB_SEARCH, SEARCH_FILES, *MEMORY, *HELPER_TOOLS, *SESSION_TOOLS)
