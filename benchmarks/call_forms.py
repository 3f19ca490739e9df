"""Which form of calls serves a small model: 24 requests that need a tool, and 10 for code that is not to be run.

Two real models under llama.cpp, at temperature 0, with the product's prompt and parser, each with and without the
grammar of the tools. Then 100 turns of the first in which `tool_choice` requires a call. Gemma (`make real-servers`) is
a base model, which continues a transcript: its turns have plain names, and it is stopped when it writes the next one.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from datetime import date
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

from app.context.prompt import TEACHINGS, opening
from app.core.endpoint_spec import ToolGrammar
from app.core.messages import Message
from app.core.provider import CallForm, ModelRequest, Provider, TextChunk
from app.models.capabilities.abilities import AbilityOverrides
from app.models.http.client import model_client
from app.models.wire.hosted_provider import RequestDefaults
from app.models.wire.openai.provider import BareChat, OpenAIChat
from parsing import Call, Parsed, parse
from tests.support.models.real_models import GEMMA, LlamaServer, Served
from tools.base.schemas import argument_error
from tools.catalogue import TOOLS
from tools.tool import Tool

SCHEMAS = {tool.name: tool.parameters for tool in TOOLS}
MOST_TOKENS = 128
NEXT_TURN = "\nUser:"
GRAMMARS: tuple[ToolGrammar, ...] = ("off", "auto")
TRANSCRIPT = "{% for m in messages %}{{ m.role | capitalize }}: {{ m.content }}\n\n{% endfor %}Assistant:"
MODELS = [Served(name="SmolLM2-135M-Instruct", context=4096)]
if GEMMA.exists():
    MODELS.append(Served(str(GEMMA), "gemma-3-270m", TRANSCRIPT, context=4096))
opening_of = partial(opening, TOOLS, workspace=Path("/home/ann/workspace"), today=date(2026, 11, 21))


@dataclass(frozen=True, slots=True)
class Task:
    """A request that needs a tool: patterns for the names of those that serve it, and for the arguments."""

    request: str
    tools: str
    arguments: str

    def is_served_by(self, call: Call) -> bool:
        values = " ".join(map(str, call.arguments.values()))
        return bool(re.fullmatch(self.tools, call.name) and re.search(self.arguments, values, re.DOTALL))


TASKS = (
    Task("Print hello world with the shell.", "bash", r"echo.*hello"),
    Task("Show the files in this folder.", "bash|list_files", r"\bls\b|^\W*$"),
    Task("Show what is in notes.txt.", "bash|read_file", r"notes\.txt"),
    Task(
        "Write a file todo.txt with the text Buy milk.", "write_file|bash", r"todo\.txt.*Buy milk|Buy milk.*todo\.txt"
    ),
    Task("Compute 37 * 91 with Python.", "python", r"37 ?\* ?91"),
    Task("Count the lines of log.txt.", "bash|python", r"log\.txt"),
    Task("Make a folder called drafts.", "bash", r"mkdir.*drafts"),
    Task("Which Python version is installed? Use the shell.", "bash", r"python3? (-V|--version)"),
    Task("Search for the word error in server.log.", "bash", r"grep.*error.*server\.log"),
    Task("Delete the file old.txt.", "bash", r"rm.*old\.txt"),
    Task("Print today's date with the shell.", "bash", r"date"),
    Task("Read the file README.md.", "bash|read_file", r"README\.md"),
    Task("Use Python to add the numbers from 1 to 100.", "python", r"sum|range|for"),
    Task("Write a file hello.py that prints hello.", "write_file|bash", r"(?=.*hello\.py).*print"),
    Task("Copy a.txt to b.txt.", "bash", r"cp a\.txt b\.txt"),
    Task("Show the first 5 lines of data.csv.", "bash", r"head.*data\.csv"),
    Task("Show how much disk space is free.", "bash", r"df|du"),
    Task("Read the web page https://example.org.", "web_fetch|bash", r"https://example\.org"),
    Task("Run uname -a.", "bash", r"uname -a"),
    Task("Sort names.txt and show it.", "bash", r"sort.*names\.txt"),
    Task("Use Python to print the square root of 144.", "python", r"144"),
    Task("Create an empty file named empty.txt.", "bash|write_file", r"empty\.txt"),
    Task("Show the path of the current folder.", "bash", r"pwd"),
    Task("Rename a.txt to c.txt.", "bash", r"mv a\.txt c\.txt"),
)
FOR_CODE = (
    "Write me a Python script that prints the first ten squares. Do not run it.",
    "Show me a bash script that lists all files, but do not run it.",
    "Give me an example of a for loop in Python.",
    "Write a Python function that reverses a string. I only want to read it.",
    "What does a shell script that prints hello look like? Just show the code.",
    "Show me Python code that reads a file. Do not execute anything.",
    "Write me a bash one-liner that counts files, do not run it, I will do it myself.",
    "Give me a Python class for a bank account, as an example.",
    "Explain with a short Python example what a list comprehension is.",
    "Write a script in Python that deletes all .tmp files. Do not run it!",
)


NO_TOOL_NEEDED = (
    *("Hello!", "What is the capital of France?", "Tell me a joke.", "Thank you.", "Who are you?", "Sing a song."),
    *("What is 2 + 2?", "Say nothing.", "Translate dog into French.", "Is water wet?", "Name three colours.", "Bye."),
    *("Describe a house.", "Why is the sky blue?", "Write a poem.", "Count to ten."),
)
# A small model repeats itself up to the limit in one of seven calls without the penalty; such a call is cut.
ONE_CALL = {"tool_choice": "required", "parallel_tool_calls": False, "repeat_penalty": 1.1}
MOST_FORCED = 512  # tokens


async def answer(
    model: Provider,
    form: CallForm,
    request: str,
    begin: Callable[..., Sequence[Message]] = opening_of,
    *,
    tools: Sequence[Tool] = (),
    parameters: Mapping[str, Any] | None = None,
) -> Parsed:
    text = ""
    model_request = ModelRequest(
        [Message("user", request)], tools, opening=partial(begin, call_form=form), parameters=parameters or {}
    )
    async with aclosing(model.stream(model_request)) as pieces:
        async for piece in pieces:
            text += piece.text if isinstance(piece, TextChunk) else ""
            if NEXT_TURN in text:
                break
    return parse(text.partition(NEXT_TURN)[0], SCHEMAS, fences=form is CallForm.FENCED)


@asynccontextmanager
async def chatting(served: Served, form: CallForm, most: int, grammar: ToolGrammar) -> AsyncGenerator[OpenAIChat]:
    stated = AbilityOverrides("fenced" if form is CallForm.FENCED else "tagged", tool_grammar=grammar)
    chat = OpenAIChat if served.weights else BareChat
    with LlamaServer(served) as server:
        async with model_client(url := server.base_url) as client:
            model = chat(client, url, served.name, overrides=stated, defaults=RequestDefaults(most, 0.0))
            await model.window()  # finds out whether the server enforces grammars
            yield model


async def measured(served: Served, form: CallForm, grammar: ToolGrammar) -> str:
    """One row of the table."""
    started = time.monotonic()
    async with chatting(served, form, MOST_TOKENS, grammar) as model:
        first_calls = [(await answer(model, form, task.request, tools=TOOLS)).calls[:1] for task in TASKS]
        for_code = [await answer(model, form, request, tools=TOOLS) for request in FOR_CODE]
    right = sum(task.is_served_by(call) for task, calls in zip(TASKS, first_calls, strict=True) for call in calls)
    shown = sum(not reply.calls and not reply.rejected for reply in for_code)
    seconds = time.monotonic() - started
    return (
        f"{served.name:24} {form:8} {grammar:8} {right:3} of {len(TASKS)} {shown:8} of {len(FOR_CODE)} {seconds:6.0f} s"
    )


async def forced(served: Served, form: CallForm, grammar: ToolGrammar) -> str:
    """How many turns that require a call are one call that fits its tool's schema."""
    requests = (*(task.request for task in TASKS), *FOR_CODE, *NO_TOOL_NEEDED)
    async with chatting(served, form, MOST_FORCED, grammar) as model:
        replies = [await answer(model, form, one, tools=TOOLS, parameters=ONE_CALL) for one in requests]
    return f"{served.name:24} {form:8} {grammar:8} {sum(map(is_one_call, replies)):3} of {len(requests)}"


def is_one_call(reply: Parsed) -> bool:
    match reply:
        case Parsed(calls=[call], rejected=[]):
            return call.name in SCHEMAS and argument_error(call.name, SCHEMAS[call.name], call.arguments) is None
    return False


def main() -> None:
    print("model                    form     grammar  tool used      code only shown")
    for served in MODELS:
        for form, grammar in product(TEACHINGS, GRAMMARS):
            print(asyncio.run(measured(served, form, grammar)), flush=True)
    print("model                    form     grammar  a call that fits, where one is required")
    for form, grammar in product(TEACHINGS, GRAMMARS):
        print(asyncio.run(forced(MODELS[0], form, grammar)), flush=True)


if __name__ == "__main__":
    main()
