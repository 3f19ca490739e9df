"""A scripted model's server, in a process of its own: `python -m tests.support.fire.model PORT PAUSE_S`.

It keeps nothing of a conversation. The last mark in it, `[fire ID PLAN TOKENS]`, says which calls the answer makes,
and of how many numbered tokens (`w1 w2 ...`) it is made. A token that the conversation has is never repeated, and
each call has a number that no other call has: so a token that is lost or doubled on a lane is seen in its text, and a
call that is made twice in what it did.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
from asyncio import StreamReader, StreamWriter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import count
from typing import Any

from tests.support.models.chatting import DONE, chunk, says
from tests.support.models.upstream import answer, request, stream
from tests.support.replicas.servers import passed

MARK = re.compile(r"\[fire ([\w-]+) (\w+) (\d+)\]")
TOKEN = re.compile(r"\bw(\d+)\b")
EFFECTS = "effects.txt"
HELPER_TOKENS = 12
EDITED_END = "the end"
UNKNOWN = answer('{"error":"not found"}', 404)
_NUMBERS = count(1)
Made = tuple[str, dict[str, object]]


def mark_of(identity: str, plan: str, tokens: int) -> str:
    return f"[fire {identity} {plan} {tokens}]"


def edited_by(identity: str) -> str:
    """The file that the tool in the server's process adds a line to."""
    return f"edited-{identity}.txt"


def _bash(identity: str, number: str) -> Made:
    return "bash", {"command": f"echo {number} >> {EFFECTS}; echo RAN"}


def _job(identity: str, number: str) -> Made:
    return "bash", {"command": f"echo {number} >> {EFFECTS}; sleep 0.5; echo RAN", "background": True}


def _edit(identity: str, number: str) -> Made:
    return "edit_file", {"path": edited_by(identity), "old": EDITED_END, "new": f"{number}\n{EDITED_END}"}


def _helper(identity: str, number: str) -> Made:
    return "delegate", {"task": mark_of(f"{identity}-h{number}", "bash", HELPER_TOKENS)}


def _direct(identity: str, number: str) -> Made:
    return "mcp__s__work", {"direct": True, "number": number}


def _task(identity: str, number: str) -> Made:
    return "mcp__s__work", {"polls": 6, "number": number}


PLANS: Mapping[str, Sequence[Callable[[str, str], Made]]] = {
    "text": (),
    "bash": (_bash,),
    "tools": (_edit, _bash),
    "jobs": (_job,),
    "helpers": (_helper,),
    "mcp": (_direct,),
    "tasks": (_task,),
}


def reply(messages: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """The parts of the answer to a conversation."""
    texts = [json.dumps(one["content"]) if one["content"] is not None else "" for one in messages]
    marked = [at for at, one in enumerate(messages) if one["role"] == "user" and MARK.search(texts[at])]
    if not marked:
        yield from (says("There is nothing to do."), chunk(finish="stop"), DONE)
        return
    [*_, (identity, plan, tokens)] = MARK.findall(texts[marked[-1]])
    since = list(zip(messages, texts, strict=True))[marked[-1] + 1 :]
    written = [int(one) for message, text in since if message["role"] == "assistant" for one in TOKEN.findall(text)]
    calls, results = PLANS[plan], sum(message["role"] == "tool" for message, _ in since)
    until = int(tokens) * min(results + 1, len(calls) + 1) // (len(calls) + 1)
    for number in range(max(written, default=0) + 1, until + 1):
        yield says(f"w{number} ")
    if results < len(calls):
        effect = str(next(_NUMBERS))
        name, arguments = calls[results](identity, effect)
        function = {"name": name, "arguments": json.dumps(arguments)}
        yield chunk({"tool_calls": [{"index": 0, "id": f"call_{effect}", "type": "function", "function": function}]})
    yield chunk(finish="tool_calls" if results < len(calls) else "stop")
    yield DONE


async def serve(reader: StreamReader, writer: StreamWriter, pause_s: float) -> None:
    try:
        while received := await request(reader):
            if not received.path.endswith("/chat/completions"):
                await UNKNOWN(reader, writer)
                continue

            async def paced(reader: StreamReader, writer: StreamWriter, body: Any = received.json) -> None:
                for part in reply(body["messages"]):
                    await passed(pause_s)
                    writer.write(b"%x\r\n%s\r\n" % (len(part), part.encode()))
                    await writer.drain()
                writer.write(b"0\r\n\r\n")

            await stream(then=paced)(reader, writer)
    except ConnectionError:
        return  # its server has ended
    finally:
        writer.close()


async def main(port: int, pause_s: float) -> None:
    server = await asyncio.start_server(lambda reader, writer: serve(reader, writer, pause_s), "127.0.0.1", port)
    print("ready", flush=True)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), float(sys.argv[2])))
