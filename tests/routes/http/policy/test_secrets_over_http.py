"""Secrets in whole runs: which call has one, what is shown of it, and that no text of the server ever has its value."""

from __future__ import annotations

import asyncio
import base64
import subprocess
from collections.abc import Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from app.models.scripted import Scripted
from app.redaction.redactor import MARK
from app.replay.recording import written
from tests.support.access.people import bearer
from tests.support.models.replies import tool_call
from tests.support.replays import recorded
from tests.support.sandbox.private_site import VALUE as SITE_VALUE
from tests.support.sandbox.private_site import private_site
from tests.support.sandbox.proxied import Server
from tests.support.sandbox.proxied import serving as web_server
from tests.support.sandbox.wheels import needs, wheel
from tests.support.server.delegating import ByTask, delegates, result_of
from tests.support.server.events import of_kind
from tests.support.server.serving import Served, serving, until
from tools.sandbox.sandbox import Bubblewrap, find_sandbox

pytestmark = pytest.mark.anyio
LIMIT_S = 60
VALUE = "ghp_Value-of-tests/0123456789+x"
THERE = "127.0.0.2"  # a host of loopback that the box does not take for its own
SHOW = "printenv GITHUB_TOKEN || echo none"
SENDS = 'curl -sS -H "Authorization: Bearer $GITHUB_TOKEN" http://{host}/'


def bash(command: str, host: str = "api.github.com", **more: object) -> str:
    return tool_call("bash", command=command, network=[host], **more)


async def add(served: Served, **more: object) -> Any:
    body = {"name": "github", "value": VALUE, "env": "GITHUB_TOKEN", "hosts": ["api.github.com"]} | more
    answer = await served.client.post("/secrets", json=body)
    assert VALUE not in answer.text
    return answer


def texts(events: Sequence[dict[str, Any]]) -> list[str]:
    return [event["text"] for event in of_kind(events, "tool.finished")]


async def audit_of(served: Served, action: str) -> list[dict[str, Any]]:
    rows = (await served.client.get("/audit")).json()["audit"]
    return [row for row in rows if row["action"] == action]


async def approved(served: Served, **more: object) -> tuple[str, list[dict[str, Any]]]:
    """The reason of the only question of a turn, and the turn's events after it was approved."""
    async with aclosing(served.turn(message="Go.", **more)) as turn:
        started = await until(turn, "run.started")
        asked = await until(turn, "approval.required")
        path = f"/runs/{started['run']}/approvals/{asked['call']}"
        assert (await served.client.post(path, json={"decision": "approve"})).status_code == 200
        return asked["reason"], [started, *[event async for event in turn]]


@pytest.mark.usefixtures("replayed")
async def test_a_call_with_a_secret_is_shown_as_such_and_sees_a_placeholder(tmp_path: Path) -> None:
    provider = Scripted([bash(SHOW), "Done."])
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, provider) as served:
        assert (await add(served)).status_code == 201
        reason, events = await approved(served)
        assert reason.endswith("It goes with the secret github.")
        [seen] = texts(events)
        assert seen.startswith("dragoman_placeholder_") and VALUE not in seen
        assert "GITHUB_TOKEN at api.github.com" in provider.requests[0].opening()[0].text
        [row] = [row for row in await audit_of(served, "bash") if row["decision"] == "ask"]
        assert "the secret github" in row["why"]
        [listed] = (await served.client.get("/secrets")).json()["secrets"]
        assert listed["used"] >= listed["at"] and listed["by"] == "local" and "value" not in listed


@pytest.mark.usefixtures("replayed")
async def test_a_call_that_is_allowed_has_the_secret_in_its_audit(tmp_path: Path) -> None:
    replies = [bash(SHOW), bash(SHOW, "example.org"), tool_call("bash", command=SHOW), "Done."]
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, Scripted(replies)) as served:
        await add(served)
        seen = texts(await served.chat(approval="auto", when_absent="deny"))  # as in a run that nobody attends
        assert seen[0].startswith("dragoman_placeholder_") and seen[1:] == ["none", "none"], "of its hosts alone"
        whys = [row["why"] for row in await audit_of(served, "bash")]
        assert sorted(whys) == ["", "", "It goes with the secret github."]


# Changes while a question waits: what the person agreed to is not what would run.
CHANGES: dict[str, tuple[list[dict[str, object]], dict[str, object] | None, str]] = {
    "added": ([], {}, "It goes with the secret github."),
    "other hosts": ([{}], {"replace": True, "hosts": ["*.github.com"]}, "It goes with the secret github."),
    "removed": ([{}], None, "what the sandbox can read."),
}


@pytest.mark.parametrize("case", CHANGES)
async def test_an_approval_is_of_the_call_with_the_secrets_that_were_shown(tmp_path: Path, case: str) -> None:
    before, change, end = CHANGES[case]
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, Scripted([bash(SHOW), "Done."])) as served:
        for one in before:
            await add(served, **one)
        async with aclosing(served.turn(message="Go.")) as turn:
            started = await until(turn, "run.started")
            asked = await until(turn, "approval.required")
            assert ("the secret github" in asked["reason"]) == bool(before)
            if change is None:
                assert (await served.client.delete("/secrets/github")).status_code == 204
            else:
                assert (await add(served, **change)).status_code == 201
            path = f"/runs/{started['run']}/approvals"
            await served.client.post(f"{path}/{asked['call']}", json={"decision": "approve"})
            again = await until(turn, "approval.required")
            assert again["call"] != asked["call"]
            await served.client.post(f"{path}/{again['call']}", json={"decision": "deny"})
            assert texts([event async for event in turn]) == []
        assert again["reason"].startswith("What it would change is not what it was") and again["reason"].endswith(end)
        assert again["reason"].count("the secret github") == (change is not None)


async def test_a_grant_from_before_the_secret_asks_again(tmp_path: Path) -> None:
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, Scripted([bash(SHOW), "Done."] * 3)) as served:
        async with aclosing(served.turn(message="Go.")) as turn:
            started = await until(turn, "run.started")
            asked = await until(turn, "approval.required")
            wish = {"decision": "approve", "scope": "session", "hosts": ["api.github.com"]}
            answer = await served.client.post(f"/runs/{started['run']}/approvals/{asked['call']}", json=wish)
            assert answer.status_code == 200, answer.text
            assert texts([event async for event in turn]) == ["none"]
        session = started["session"]
        assert texts(await served.chat(session=session)) == ["none"], "nobody was asked"
        await add(served)
        reason, _ = await approved(served, session=session)
        assert reason.endswith("It goes with the secret github.")


async def test_hosts_that_a_person_adds_bring_no_secret_that_was_not_shown(tmp_path: Path) -> None:
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, Scripted([bash(SHOW, "example.org"), "Done."])) as served:
        await add(served)
        async with aclosing(served.turn(message="Go.")) as turn:
            started = await until(turn, "run.started")
            asked = await until(turn, "approval.required")
            edited = {"command": SHOW, "network": ["api.github.com"]}
            answer = {"decision": "approve", "scope": "session", "arguments": edited}
            await served.client.post(f"/runs/{started['run']}/approvals/{asked['call']}", json=answer)
            rejected = await until(turn, "tool.rejected")
            assert "would go with a secret that was not shown" in rejected["reason"]
        [grant] = await served.services.store.grants(started["session"])
        assert grant.secrets == "", "and the grant does not count for it either"


async def test_a_role_below_that_of_the_secret_runs_without_it(tmp_path: Path) -> None:
    """Nobody but admins reads, adds or removes secrets."""
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, Scripted([bash(SHOW), "Done."])) as served:
        admin = await bearer(served, "root", "admin")
        served.client.headers.update(admin)
        await add(served)
        for role in ("user", "guest"):
            served.client.headers.update(await bearer(served, role, role))
            bodies = [
                ("GET", "/secrets", None),
                ("POST", "/secrets", {"name": "x"}),
                ("DELETE", "/secrets/github", None),
            ]
            for method, path, body in bodies:
                answer = await served.client.request(method, path, json=body)
                assert (answer.status_code, answer.json()["error"]["code"]) == (403, "forbidden"), path
        served.client.headers.update(await bearer(served, "ann"))
        reason, events = await approved(served)
        assert "secret" not in reason and texts(events) == ["none"]


# What a command or a model makes of the value, when it has got hold of it by some other way.
ECHOES = {
    "plain": VALUE,
    "url": quote(VALUE, safe=""),
    "base64": base64.b64encode(VALUE.encode()).decode(),
    "basic": base64.b64encode(f"user:{VALUE}".encode()).decode(),
    "url-safe": base64.urlsafe_b64encode(f"x:{VALUE}:y".encode()).decode(),
}


@pytest.mark.usefixtures("replayed")
async def test_no_event_and_no_file_of_the_server_ever_holds_the_value(tmp_path: Path) -> None:
    text = " ".join(ECHOES.values())
    middle = len(VALUE) // 2
    halves = f"printf '%s' '{VALUE[:middle]}' '{VALUE[middle:]}'"
    replies = [
        f"It is {text}.",
        tool_call("bash", command=f"cat {tmp_path / 'work' / 'echo.txt'}"),
        tool_call("bash", command=halves),
        "Done.",
    ]
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, Scripted(replies), record=True) as served:
        await add(served)
        (tmp_path / "work" / "echo.txt").write_text(text)
        events = await served.chat(f"Do you know {VALUE}?") + await served.chat("Go on.", approval="auto")
        assert all(form not in str(events) for form in ECHOES.values())
        assert MARK in str(texts(events)[0])
        recordings = "".join(written(one) for one in await recorded(served))
        assert recordings and VALUE not in recordings
        for path in ("/sessions", f"/sessions/{events[0]['session']}", "/audit", "/secrets", "/approvals"):
            assert VALUE not in (await served.client.get(path)).text, path
    found = [path for path in (tmp_path / "data").rglob("*") if path.is_file() and VALUE.encode() in path.read_bytes()]
    assert found == []


async def test_helpers_have_the_secrets_of_their_person(tmp_path: Path) -> None:
    provider = ByTask({"Go.": [delegates("Look there."), "Done."], "Look there.": [bash(SHOW), "Seen."]})
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, provider, helpers=True) as served:
        await add(served)
        events = await served.chat("Go.", approval="auto")
        assert result_of(events)["ok"]
        [row] = await audit_of(served, "bash")
        assert row["why"] == "It goes with the secret github."


def sent_to(server: Server) -> list[str]:
    """The Authorization headers of the requests that a web server got."""
    lines = [line for head in server.heads for line in head.decode().split("\r\n")]
    return [line.partition(": ")[2] for line in lines if line.lower().startswith("authorization:")]


async def test_a_host_gets_the_value_until_it_is_replaced_and_jobs_keep_theirs(tmp_path: Path) -> None:
    """The whole way: added over HTTP, approved by the mode, put in by the proxy of the box."""
    async with asyncio.timeout(LIMIT_S), web_server(THERE) as server:
        host = f"{THERE}:{server.port}"
        sends = SENDS.format(host=host)
        loop = f"{sends} && until [ -e go ]; do sleep 0.05; done; {sends}"
        replies = [
            tool_call("bash", command=loop, network=[host], background=True),
            *[bash(sends, host), "Done."] * 2,
        ]
        async with serving(tmp_path, Scripted(replies), private_hosts=THERE, job_follow_up=False) as served:
            assert (await add(served, hosts=[f"http://{host}"])).status_code == 201
            assert len(texts(await served.chat(approval="auto"))) == 2
            while len(sent_to(server)) < 2:  # by the call, and by the job that goes on
                await served.services.store.check()
            again = await add(served, hosts=[f"http://{host}"], value=f"{VALUE}-2", replace=True)
            assert again.status_code == 201
            assert len(texts(await served.chat(approval="auto"))) == 1
            (tmp_path / "work" / "go").write_text("")
            while len(sent_to(server)) < 4:
                await served.services.store.check()
        assert sent_to(server) == [f"Bearer {VALUE}", f"Bearer {VALUE}", f"Bearer {VALUE}-2", f"Bearer {VALUE}"]


def git(*words: str) -> str:
    return subprocess.run(["git", *words], check=True, capture_output=True, text=True).stdout


@needs("git", "pip3")
async def test_git_push_and_pip_install_work_through_the_whole_server(tmp_path: Path) -> None:
    """Over TLS, with basic auth, from calls of a run; the host gets the value, and the run the placeholder only."""
    with private_site(tmp_path) as there:
        box = find_sandbox(levels=["bubblewrap"], private_hosts=[THERE], authorities=[there.authority])
        assert isinstance(box, Bubblewrap)
        repository = there.repositories / "r.git"
        git("init", "-q", "--bare", "-b", "main", str(repository))
        git("-C", str(repository), "config", "http.receivepack", "true")
        packed = "tiny-1.0-py3-none-any.whl"
        there.pages = {"/simple/tiny/": f'<a href="/{packed}">{packed}</a>'.encode(), f"/{packed}": wheel()}
        push = (
            "git init -q -b main r && cd r && git commit -q --allow-empty -m first && "
            f"git push -q https://x-access-token:$GIT_TOKEN@{there.host}/git/r.git main && echo pushed"
        )
        index = f"https://__token__:$GIT_TOKEN@{there.host}/simple"
        install = (
            f"python3 -m pip install -q --target here --index-url {index} --disable-pip-version-check tiny && "
            "PYTHONPATH=here python3 -c 'import tiny; print(tiny.answer)'"
        )
        replies = [bash(push, there.host), bash(install, there.host), "Done."]
        async with asyncio.timeout(100), serving(tmp_path, Scripted(replies), private_hosts=THERE) as served:
            served.services.factory.sandbox = box
            wish = {"name": "site", "env": "GIT_TOKEN", "value": SITE_VALUE, "hosts": [there.host]}
            assert (await add(served, **wish)).status_code == 201
            events = await served.chat(approval="auto")
            pushed, installed = texts(events)
        assert "pushed" in pushed and "42" in installed, (pushed, installed)
        assert SITE_VALUE not in str(events) and "dragoman_placeholder" not in "".join(there.seen)
        assert git("-C", str(repository), "log", "--format=%s", "main") == "first\n"


async def test_a_secret_that_cannot_be_resolved_refuses_the_call_and_nothing_else(tmp_path: Path) -> None:
    replies = [bash(SHOW), tool_call("bash", command="echo fine"), "Done."]
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, Scripted(replies)) as served:
        await add(served)
    (tmp_path / "data" / "secrets.key").rename(tmp_path / "elsewhere.key")
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, Scripted(replies)) as served:
        refused, fine = texts(await served.chat(approval="auto"))
        assert refused.startswith("bash was not run: The key file ") and "Restore it" in refused and fine == "fine"
        answer = await add(served, name="other", env="OTHER_TOKEN")
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "secret_unavailable")
        (tmp_path / "elsewhere.key").rename(tmp_path / "data" / "secrets.key")
        assert (await add(served, name="other", env="OTHER_TOKEN")).status_code == 201, "nothing is started anew"


async def test_without_the_box_of_bubblewrap_a_call_with_a_secret_is_refused_in_words(tmp_path: Path) -> None:
    replies = [bash(SHOW), tool_call("bash", command="echo fine"), "Done."]
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, Scripted(replies), unsafe_no_sandbox=True) as served:
        await add(served)
        refused, fine = texts(await served.chat(approval="auto"))
        assert refused.startswith("bash was not run: No secret can be used here") and fine == "fine"
        [listed] = (await served.client.get("/secrets")).json()["secrets"]
        assert listed["used"] is None


REFUSED: list[tuple[dict[str, object], int, str]] = [
    ({}, 409, "secret_exists"),
    ({"value": "short"}, 409, "secret_exists"),
    ({"name": "b", "env": "B_TOKEN", "value": "short"}, 422, "unfit_secret"),
    ({"name": "b"}, 422, "unfit_secret"),  # the variable is taken
    ({"name": "b b", "env": "B_TOKEN"}, 422, "unfit_secret"),
    ({"name": "b", "env": "B_TOKEN", "hosts": ["*"]}, 422, "invalid_request"),
    ({"name": "b", "env": "PATH"}, 422, "invalid_request"),
    ({"name": "b", "source": "env:HOME"}, 422, "invalid_request"),
    ({"name": "b", "source": "command:id"}, 422, "invalid_request"),
    ({"name": "b", "value": ""}, 422, "invalid_request"),
]


async def test_what_cannot_be_a_secret_is_refused_over_http(tmp_path: Path) -> None:
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, Scripted([])) as served:
        await add(served)
        for body, status, code in REFUSED:
            answer = await add(served, **body)
            assert (answer.status_code, answer.json()["error"]["code"]) == (status, code), body
        assert (await served.client.delete("/secrets/github")).status_code == 204
        assert (await served.client.delete("/secrets/github")).status_code == 404
        assert (await served.client.get("/secrets")).json() == {"secrets": []}
