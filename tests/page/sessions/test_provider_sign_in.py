"""Signing in on the page at an OpenID provider, in Chromium: oidc-provider of npm asks for the name."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from app.models.scripted import Scripted
from tests.support.access.identity import PUBLIC_URL, SECRET, STAFF, People, configure, real_provider
from tests.support.page.browser import STORY_S, Page, browsing, expect, home, say, shot
from tests.support.page.windows import ALONE
from tests.support.replicas.nginx import free_port
from tests.support.server.serving import serving

pytestmark = [pytest.mark.usefixtures("chromium"), pytest.mark.anyio]
# The last: fonts of the provider's page.
REFUSED = "40[134]|429|502|frame-ancestors|Content Security Policy|NAME_NOT_RESOLVED"


async def enter_name(page: Page, login: str) -> None:
    await page.get_by_placeholder("Enter any login").fill(login)
    await page.get_by_placeholder("and password").fill("x")
    await page.get_by_role("button", name="Sign-in").click()
    await page.get_by_role("button", name="Continue").click()


async def test_a_person_signs_in_at_the_provider_and_out_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OIDC_SECRET", SECRET)
    port = free_port()
    issuer = f"http://localhost:{port}"
    configure(tmp_path, issuer)
    async with asyncio.timeout(STORY_S), serving(tmp_path, Scripted(["A secret answer."])) as served:
        assert served.services.provider
        assert served.services.provider.public_url == PUBLIC_URL
        served.services.provider.public_url = str(served.client.base_url).rstrip("/")
        people: People = {"ann": {"preferred_username": "ann"} | STAFF, "eve": {"preferred_username": "eve"}}
        async with real_provider(port, people, served, served.services.provider.public_url), browsing() as browser:
            browser.expected.append(REFUSED)
            context = await browser.context()
            page = await context.new_page()
            await page.goto(f"{home(served)}/#oidc?state=made.up&code=c")  # a link from elsewhere
            await expect(page.get_by_text("This sign-in was not begun in this browser")).to_be_visible()
            assert "code" not in page.url
            await page.goto(f"{home(served)}/oidc/callback?error=access_denied&state=x")
            await expect(page.get_by_text("The provider did not sign you in: access_denied")).to_be_visible()
            await shot(page, "sign-in-provider")
            await page.get_by_role("button", name="Sign in with Example").click()
            await enter_name(page, "ann")
            await say(page, "Tell me something.")
            await expect(page.get_by_text("A secret answer.")).to_be_visible()
            session = page.url
            await page.reload()
            await expect(page.get_by_text("A secret answer.")).to_be_visible()
            second = await context.new_page()
            await second.goto(session)
            await expect(second.get_by_text("A secret answer.")).to_be_visible()
            stored = await page.evaluate("JSON.stringify(localStorage) + JSON.stringify(sessionStorage)")
            assert "dragoman-sgn_" not in stored and "id_token" not in stored
            await second.get_by_role("button", name="Settings").click()
            await second.get_by_role("button", name="Sign out").click()
            await expect(page.get_by_text("You have signed out.")).to_be_visible()
            await second.get_by_role("button", name="Yes, sign me out").click()  # at the provider
            await expect(second.get_by_role("button", name="Sign in with Example")).to_be_visible()
            assert not await served.services.store.sign_ins()
            # One without a role; and the words of a German browser.
            await second.get_by_role("button", name="Sign in with Example").click()
            await enter_name(second, "eve")
            await expect(second.get_by_text("nothing gives you a role on this server")).to_be_visible()
            german = await browser.context(locale="de-DE")
            page = await german.new_page()
            await page.goto(home(served))
            await expect(page.get_by_role("button", name="Mit Example anmelden")).to_be_visible()


async def test_an_admin_whom_a_proxy_names_stays_that_person(tmp_path: Path) -> None:
    proxied = '[trusted_header]\nuser = "Remote-User"\nfrom = ["127.0.0.1"]\ndefault_role = "admin"\n'
    (tmp_path / "dragoman.toml").write_text(f'public_url = "{PUBLIC_URL}"\n{proxied}')
    async with asyncio.timeout(STORY_S), serving(tmp_path, Scripted([])) as served, browsing() as browser:
        page = await browser.page(extra_http_headers={"Remote-User": "ann"})
        await page.add_init_script(ALONE)  # Playwright gives them to no worker
        await page.goto(home(served))
        await page.get_by_role("button", name="Settings").click()
        await expect(page.get_by_text("You are signed in by the proxy in front of this server.")).to_be_visible()
        await page.get_by_text("People", exact=True).click()
        await page.get_by_label("Name", exact=True).fill("ci")
        await page.get_by_role("button", name="Make a token").click()
        await expect(page.get_by_label("Token of ci")).to_be_visible()
        # It is a program's: the page goes on as ann.
        assert await page.evaluate("sessionStorage.getItem('dragoman.token')") is None
        names = {(row.name, row.role) for row in await served.services.store.tokens()}
        assert names == {("ann", "admin"), ("ci", "user")}
