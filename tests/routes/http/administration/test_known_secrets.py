"""A secret that the server knows appears nowhere, however a model, a tool, a model's server or a person tries."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any, NamedTuple

import httpx2
import pytest

from app.redaction.redactor import MARK
from tests.support.access.canaries import FILE, KEY, VARIABLE, Den, events_in
from tests.support.models.chatting import DONE, chunk, says
from tests.support.models.upstream import Act, answer, stream, upstream
from tests.support.sandbox.jobs import FOUND
from tests.support.server.serving import events_of, until
from tools.sandbox.sandbox import NoSandbox

pytestmark = pytest.mark.anyio
MARKED = MARK.encode()


class Attack(NamedTuple):
    """What the model's server answers, one act per round, and what the person said. `hides`: something is hidden."""

    name: str
    acts: Sequence[Act]
    message: str = "Go on."
    hides: bool = True


def reply(*chunks: str) -> Act:
    return stream(*chunks, chunk(finish="stop"), DONE)


END = reply(says("Done."))


def in_text(tool: str, code: str) -> Act:
    call = {"name": tool, "arguments": {"command" if tool == "bash" else "code": code}}
    return reply(says(f"<tool_call>{json.dumps(call)}</tool_call>"))


def native(name: str, arguments: str, size: int = 1) -> Act:
    """A native call, its arguments in pieces."""

    def call(**function: str) -> str:
        return chunk({"tool_calls": [{"index": 0, "id": "x", "type": "function", "function": function}]})

    pieces = [arguments[at : at + size] for at in range(0, len(arguments), size)]
    return stream(call(name=name, arguments=""), *[call(arguments=one) for one in pieces], chunk(finish="stop"), DONE)


def said(den: Den) -> list[Attack]:
    """Without any tool: the model has been told the secrets, or its server has."""
    every = " and ".join(den.secrets)
    call = f"<tool_call>{json.dumps({'name': KEY, 'arguments': {VARIABLE: [KEY]}})}</tool_call>"
    thinking = [chunk({"reasoning_content": character}) for character in every]
    middle = len(VARIABLE) // 2
    split = f"{VARIABLE[:middle]}<tool_call>{{}}</tool_call>{VARIABLE[middle:]}."
    wrong = {"error": {"message": f"Incorrect API key provided: {KEY}. You sent Bearer {KEY}."}}
    return [
        Attack("text", [reply(says(f"They are {every}."))]),
        Attack("text by character", [reply(*map(says, f"They are {every}."))]),
        Attack("text by three", [reply(*[says(every[at : at + 3]) for at in range(0, len(every), 3)])]),
        Attack("text cut off", [stream(*map(says, KEY[:-1]), chunk(finish="length"), DONE)]),
        Attack("reasoning by character", [reply(*thinking, says("Well."))]),
        Attack("woven", [reply(*[one for pair in zip(thinking, map(says, every), strict=True) for one in pair])]),
        Attack("thought in hindsight", [reply(*map(says, f"They are {every}.</think>Or {every}."))]),
        Attack(
            "across the end of a thought", [reply(*map(says, f"It is {VARIABLE[:middle]}</think>{VARIABLE[middle:]}."))]
        ),
        Attack("around markup", [reply(*map(says, split)), END]),
        Attack("name and arguments", [reply(says(call)), END]),
        Attack("native name", [native(KEY, json.dumps({VARIABLE: KEY})), END]),
        Attack("wrong key", [answer(json.dumps(wrong), 401)]),
        Attack("wrong key, no JSON", [answer(f"<p>{KEY}</p>", 403, "text/html")], hides=False),
        Attack("error in the stream", [stream(says("Well"), f"data: {json.dumps(wrong)}\n\n"), END]),
        Attack("broken chunk", [reply(f"data: {VARIABLE}\n\n", says("Well.")), END], hides=False),
        Attack("the person says it", [END], message=f"My keys: {every}. Keep them secret."),
        Attack("only the person", [END], message=KEY),
    ]


def run_inside(den: Den) -> list[Attack]:
    """With tools."""
    data, every = den.folder / "data", " ".join(den.secrets)
    environ = "env; export -p; cat /proc/*/environ /proc/*/cmdline | tr '\\0' '\\n'; echo end"
    python = "import os, glob\nprint(os.environ)\nfor p in glob.glob('/proc/*/environ'): print(open(p, 'rb').read())"
    files = f"ls -la {data} {data}/..; cat {data}/* ../data/*; grep -ra canary {den.folder} /etc /tmp; echo end"
    slowly = "import time\nfor c in {!r}:\n    print(c, end='', flush=True)\n    time.sleep(0.02)\n"
    return [
        Attack("environment", [in_text("bash", environ), END], hides=False),
        Attack("environment in python", [in_text("python", python), END], hides=False),
        Attack("the data directory", [in_text("bash", files), END], hides=False),
        *(
            Attack(f"file {path}", [native("read_file", json.dumps({"path": path})), END], hides=False)
            for path in ("../data/notes.txt", f"{data}/notes.txt", "/proc/self/environ", f"{data}/dragoman.db")
        ),
        Attack("printed", [in_text("bash", f"cat <<'E'\n{every}\nE"), END]),
        Attack("printed slowly", [in_text("python", slowly.format(VARIABLE)), END]),
        Attack("put together", [in_text("python", f"print({VARIABLE[:9]!r} + {VARIABLE[9:]!r})"), END]),
        Attack("native, by character", [native("bash", json.dumps({"command": f"echo '{KEY}' {VARIABLE}"})), END]),
        Attack("written", [native("write_file", json.dumps({"path": "f", "content": every})), END]),
        Attack("read again", [in_text("bash", f"cat f; echo {VARIABLE}"), END]),
        Attack("an error of the shell", [in_text("bash", f"{VARIABLE} --help"), END]),
        Attack("a broken schema", [native("read_file", json.dumps({"path": {KEY: 1}})), END]),
        Attack("in the background", [in_text("bash", f"#!bg\necho {VARIABLE[:9]}'{VARIABLE[9:]}' {den.token}"), END]),
    ]


async def try_all(den: Den, client: httpx2.AsyncClient, attacks: Sequence[Attack], **more: object) -> None:
    """Each attack in a session of its own; all that it makes visible is seen, live and again."""
    for attack in attacks:
        response = await client.post("/chat", json={"message": attack.message, **more})
        den.seen[attack.name] = response.content
        ends = [event["type"] for event in events_in(response.content)][-1:]
        assert ends and ends[0] in ("run.finished", "run.failed"), (attack.name, response.text)
        run, session = response.headers["x-run-id"], response.headers["x-session-id"]
        for path in (f"/runs/{run}/events", f"/runs/{run}", f"/sessions/{session}"):
            den.seen[f"{path} ({attack.name})"] = (await client.get(path)).content
        if attack.hides:
            assert MARKED in den.seen[f"/sessions/{session} ({attack.name})"] + response.content, attack.name


CHILDREN = ("jobs.supervisor", "orphan_reaper", "command.sh")


async def look_at_children(den: Den, client: httpx2.AsyncClient) -> None:
    """While a job runs: its supervisor, its box, itself, and what watches over commands."""
    await client.post("/chat", json={"message": "Wait in the background."})
    async with asyncio.timeout(60):  # starting takes its time
        while not all(any(expected in one for one in den.look_at_children()) for expected in CHILDREN):
            await client.get("/livez")
    for job in (await client.get("/jobs")).json()["jobs"]:
        await client.post(f"/jobs/{job['id']}/cancel")


async def look_around(den: Den, client: httpx2.AsyncClient) -> None:
    """Every list there is, and answers to requests that hold secrets themselves."""
    for path in ("/", "/tools", "/readyz", "/livez", "/sessions", "/approvals", "/audit", "/jobs"):
        den.seen[path] = (await client.get(path)).content
    for job in json.loads(den.seen["/jobs"])["jobs"]:
        for path in (f"/jobs/{job['id']}/events", f"/jobs/{job['id']}"):
            den.seen[path] = (await client.get(path)).content
    for secret in (VARIABLE, den.token):
        for path in (f"/runs/{secret}", f"/sessions/{secret}", f"/jobs/{secret}", f"/runs/x/events?after={secret}"):
            answered = await client.get(path)
            assert answered.status_code in (400, 404)
            den.seen[path] = answered.content
        for wrong in ({"message": "x", "tools": [secret]}, {"message": "x", "session": secret}, {secret: secret}):
            den.seen[f"answer to {wrong}"] = (await client.post("/chat", json=wrong)).content
        refused = await client.get("/tools", headers={"authorization": f"Bearer x{secret}", "origin": secret})
        den.seen[f"refused {secret}"] = refused.content


async def test_it_appears_nowhere(tmp_path: Path) -> None:
    if isinstance(FOUND, NoSandbox):
        pytest.skip(FOUND.reason)
    den = Den(tmp_path)
    await den.prepare()
    attacks = said(den) + run_inside(den)
    acts = [act for attack in attacks for act in attack.acts]
    async with upstream(*acts, in_text("bash", "#!bg\nsleep 600"), END, chats=True) as model:
        async with den.served(model.base_url) as client:
            await try_all(den, client, attacks)
            await look_at_children(den, client)
            await look_around(den, client)
        asked = [one for one in model.asked if one.method == "POST"]
        assert all(one.headers["authorization"] == f"Bearer {KEY}" for one in asked)
        den.seen["what the model was told"] = b"\n".join(one.body for one in asked)
    for session in json.loads(den.seen["/sessions"])["sessions"][::10]:  # each takes a second
        den.seen[f"export of {session['id']}"] = den.run("db", "export", session["id"]).encode()
    den.seen["config"] = den.run("config").encode()
    assert den.leaks() == []
    assert b"TRACE" in den.seen["log"]  # it was as loud as it can be
    assert all(MARKED in den.seen[place] for place in ("log", "/jobs", "what the model was told", "/audit"))
    assert all(b"tool.finished" in den.seen[attack.name] for attack in run_inside(den) if attack.name == "printed")


async def test_without_a_sandbox_the_environment_is_still_not_shown(tmp_path: Path) -> None:
    den = Den(tmp_path)
    await den.prepare()
    environ = "cat /proc/$PPID/environ | tr '\\0' '\\n'; cat ../dragoman.toml; tr '\\0' '\\n' < /proc/$PPID/environ >&2"
    attacks = [Attack("the server's environment", [in_text("bash", environ), END])]
    async with (
        upstream(*(act for attack in attacks for act in attack.acts), chats=True) as model,
        den.served(model.base_url, "--unsafe-no-sandbox") as client,
    ):
        await try_all(den, client, attacks, approval="auto")
    finished = next(one for one in events_in(den.seen[attacks[0].name]) if one["type"] == "tool.finished")
    assert f"CANARY_API_KEY={MARK}" in finished["text"]
    assert f'model_key = "{MARK}"' in finished["text"]
    assert den.leaks() == []


async def test_what_a_person_says_of_a_call_is_hidden_too(tmp_path: Path) -> None:
    if isinstance(FOUND, NoSandbox):
        pytest.skip(FOUND.reason)
    den = Den(tmp_path)
    await den.prepare()
    async with (
        upstream(in_text("bash", f"echo {VARIABLE}"), END, chats=True) as model,
        den.served(model.base_url) as client,
        client.stream("POST", "/chat", json={"message": "Go", "approval": "ask"}) as response,
        aclosing(events_of(response)) as turn,
    ):
        asked = await until(turn, "approval.required")
        waiting = await client.get("/approvals")
        edited: dict[str, Any] = {"command": f"printf '%s\\n' '{VARIABLE}' and 42"}
        decision = {"decision": "approve", "scope": "session", "arguments": edited, "note": den.token}
        path = f"/runs/{response.headers['x-run-id']}/approvals/{asked['call']}"
        decided = await client.post(path, json=decision)
        assert decided.status_code == 200
        rest = [asked, *[event async for event in turn]]
        steps = [one["type"] for one in rest]
        den.seen |= {"events": json.dumps(rest).encode(), "waiting": waiting.content, "decided": decided.content}
    assert "tool.finished" in steps
    assert b"and 42" in den.seen["events"]
    assert all(MARKED in den.seen[place] for place in ("events", "waiting", "decided"))
    assert den.leaks() == []


def test_a_leak_would_be_seen(tmp_path: Path) -> None:
    den = Den(tmp_path, token="dgm_token")
    frames = [{"type": "text.delta", "text": character} for character in KEY]
    den.seen["stream"] = b"".join(f"data: {json.dumps(one)}\n\n".encode() for one in frames)
    den.seen["row"] = json.dumps({"data": json.dumps({"text": KEY})}).encode()
    den.seen["file"] = FILE.encode()
    assert {leak.rpartition(" in ")[2] for leak in den.leaks()} == {"text.delta  of stream", "row", "file"}
