"""The page's receivers of notifications: webhooks in the settings, and the service worker of Web Push."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from app.core.provider import ProviderFailed
from app.models.scripted import Pause, Raise, Scripted
from tests.support.models.replies import bash_block
from tests.support.notifications import Browser
from tests.support.page.approvals import NOTICES, press, questions_on
from tests.support.page.browser import PHONE, STORY_S, Page, browsing, expect, home, say
from tests.support.server.receivers import receiver, verified
from tests.support.server.serving import Served, serving

pytestmark = pytest.mark.usefixtures("chromium")


# The shell has no notifications: what the worker shows is kept for the test, and a click is an event of the test.
SHOWS = """() => {
  self.shown = new Promise((done) => {
    ServiceWorkerRegistration.prototype.showNotification = async (...given) => done(given);
  });
}"""
CLICKED = """(data) => {
  const event = new ExtendableEvent("notificationclick");
  event.notification = { data, close() {} };
  event.waitUntil = (work) => work.catch(() => null); // without a person's click no window may take the focus
  self.dispatchEvent(event);
}"""


# In place of the push service: a subscription of this browser, kept as long as the page.
SUBSCRIBES = """([endpoint, p256dh, auth]) => {
  let made = null;
  PushManager.prototype.getSubscription = async () => made;
  PushManager.prototype.subscribe = async () => (made = {
    toJSON: () => ({ endpoint, keys: { p256dh, auth } }),
    unsubscribe: async () => { made = null; },
  });
}"""


async def worker_of(page: Page) -> str:
    """Register the service worker as the switch does, without the push service that tests cannot reach."""
    path = "/page/js/notifications/push_switch.js"
    scope: str = await page.evaluate(f"import('{path}').then((module) => module.worker()).then((one) => one.scope)")
    return scope


async def test_webhooks_and_push_on_the_page(tmp_path: Path) -> None:
    async with (
        asyncio.timeout(STORY_S),
        receiver() as there,
        serving(tmp_path, Scripted(["Good."]), private_hosts="127.0.0.1") as served,
        browsing() as browser,
    ):
        browser.expected.append("422")
        page = await browser.page()
        await page.goto(home(served))
        await page.get_by_role("button", name="Settings").click()
        await page.get_by_text("Push messages and webhooks").click()
        await page.get_by_label("Address", exact=True).fill("https://10.0.0.1/")
        await page.get_by_role("button", name="Add webhook").click()
        await expect(page.get_by_text("private_hosts")).to_be_visible()
        await page.get_by_label("Address", exact=True).fill(there.url)
        await page.get_by_label("A budget is nearly used up").uncheck()
        await page.get_by_role("button", name="Add webhook").click()
        secret = await page.get_by_label("Secret of 127.0.0.1").input_value()
        await page.get_by_role("button", name="Test 127.0.0.1").click()
        await expect(page.get_by_text("Delivered (200)")).to_be_visible()
        assert verified((await there.got(1))[0], secret)
        await served.chat("Hello")
        await there.got(2)
        await page.get_by_text("Last deliveries").click()
        await expect(page.get_by_text("run.ended: delivered")).to_be_visible()
        [hook] = (await served.client.get("/webhooks")).json()["webhooks"]
        assert "budget.low" not in hook["events"] and "run.ended" in hook["events"]
        await page.get_by_role("button", name="Remove", exact=True).click()
        await page.get_by_role("button", name="Remove it").click()
        await expect(page.get_by_text("Last deliveries")).to_have_count(0)
        await page.get_by_label("Address", exact=True).fill(there.url)
        await page.get_by_label("Format").select_option("ntfy")
        await page.get_by_role("button", name="Add webhook").click()
        await page.get_by_role("button", name="Test 127.0.0.1").click()
        assert (await there.got(3))[2].headers["title"] == "This is a test."
        await expect(page.get_by_label("Secret of 127.0.0.1")).to_have_count(0)


async def test_a_browser_is_switched_on_and_off(tmp_path: Path) -> None:
    mine, other = Browser(), Browser()
    async with (
        asyncio.timeout(STORY_S),
        receiver() as there,
        receiver() as elsewhere,
        serving(tmp_path, Scripted([]), private_hosts="127.0.0.1") as served,
        browsing() as browser,
    ):
        browser.expected.append("404")
        row = {"endpoint": elsewhere.url, "keys": dict(zip(("p256dh", "auth"), other.keys, strict=True))}
        await served.client.post("/push", json={**row, "name": "Telephone"})
        page = await browser.page()
        await page.context.grant_permissions(["notifications"], origin=home(served).rstrip("/"))
        await page.goto(home(served))
        await page.evaluate(SUBSCRIBES, [there.url, *mine.keys])
        await page.get_by_role("button", name="Settings").click()
        await page.get_by_text("Push messages and webhooks").click()
        switch = page.get_by_label("Notify this browser")
        await expect(page.get_by_text("Telephone")).to_be_visible()
        await expect(switch).not_to_be_checked()
        await switch.click()
        [_, own] = await until_subscribed(served, 2)
        await expect(switch).to_be_checked()
        await page.get_by_role("button", name=f"Test {own['name']}").click()
        await expect(page.get_by_text("Delivered (200)")).to_be_visible()
        [message] = await there.got(1)
        assert json.loads(mine.decrypted(message.body))["title"] == "This is a test."
        await switch.click()
        await until_subscribed(served, 1)
        await expect(switch).not_to_be_checked()
        await switch.click()  # anew; the server forgets it, as for a push service that does not know it
        [_, own] = await until_subscribed(served, 2)
        await expect(switch).to_be_checked()
        await expect(switch).to_be_enabled()  # it has asked the server before the row goes
        await served.client.delete(f"/push/{own['id']}")
        await switch.click()
        await expect(switch).not_to_be_checked()
        await expect(page.get_by_text("There is no push")).to_have_count(0)
        assert not elsewhere.requests


async def until_subscribed(served: Served, count: int) -> list[dict[str, str]]:
    """The browsers of the principal, once there are so many."""
    while True:
        rows: list[dict[str, str]] = (await served.client.get("/push")).json()["subscriptions"]
        if len(rows) == count:
            return rows


async def test_a_push_message_is_shown_and_opens_its_conversation(tmp_path: Path) -> None:
    """The message comes from the debugger: headless Chromium has no push service here."""
    async with asyncio.timeout(STORY_S), serving(tmp_path, Scripted(["Good."])) as served, browsing() as browser:
        session = (await served.chat("Hello"))[0]["session"]
        page = await browser.page()
        await page.context.grant_permissions(["notifications"], origin=home(served).rstrip("/"))
        await page.goto(home(served))
        scope = await worker_of(page)
        assert scope.endswith("/page/js/notifications/")
        debugger = await page.context.new_cdp_session(page)
        registered = asyncio.get_running_loop().create_future()

        def seen(event: dict[str, list[dict[str, str]]]) -> None:
            for one in event["registrations"]:
                if one["scopeURL"] == scope and not registered.done():
                    registered.set_result(one["registrationId"])

        debugger.on("ServiceWorker.workerRegistrationUpdated", seen)
        await debugger.send("ServiceWorker.enable")
        message = {"title": "A run has ended", "body": "Hello", "session": session, "run": "", "call": ""}
        delivery = {"origin": home(served).rstrip("/"), "registrationId": await registered, "data": json.dumps(message)}
        worker = page.context.service_workers[0]
        await worker.evaluate(SHOWS)
        await debugger.send("ServiceWorker.deliverPushMessage", delivery)
        [title, options] = await worker.evaluate("self.shown")
        assert (title, options["body"], options["data"]) == (
            *("A run has ended", "Hello"),
            {"session": session, "run": "", "call": ""},
        )
        await worker.evaluate(CLICKED, options["data"])
        await page.wait_for_url(f"**/#{session}")


@pytest.mark.parametrize("is_open", [True, False])
async def test_a_notification_of_a_call_opens_its_decision_and_decides_nothing(tmp_path: Path, is_open: bool) -> None:
    script = [bash_block("touch one"), "Seen."]
    async with (
        asyncio.timeout(STORY_S),
        serving(tmp_path, Scripted(script), approval_admin="ask") as served,
        browsing() as browser,
    ):
        turn = asyncio.create_task(served.chat("Go."))
        page = await browser.page(viewport=PHONE)
        await page.goto(home(served))
        await expect(page.locator(".approval-others li")).to_contain_text("Another conversation is waiting")
        [row] = (await served.client.get("/approvals")).json()["approvals"]
        if is_open:
            await worker_of(page)
            worker = page.context.service_workers[0]
            await worker.evaluate(CLICKED, {name: row[name] for name in ("session", "run", "call")})
        else:  # as the worker opens a window
            await page.goto("about:blank")
            await page.goto(f"{home(served)}#{row['session']}/{row['run']}/call={row['call']}")
        await expect(questions_on(page)).to_be_focused()
        await expect(questions_on(page).get_by_text("touch one", exact=True)).to_be_visible()
        assert (await served.client.get("/approvals")).json()["approvals"], "a person sees it before it is decided"
        await press(page, "Approve once")
        events = await turn
        [resolved] = [event for event in events if event["type"] == "approval.resolved"]
        assert (resolved["decision"], resolved["door"]) == ("approved", "push")


async def test_a_failure_is_notified_in_the_background(tmp_path: Path) -> None:
    fails = asyncio.Event()
    failure = Raise(ProviderFailed("model_cut", "The connection was lost.", retryable=False))
    async with serving(tmp_path, Scripted([[Pause(fails), failure]])) as served, browsing() as browser:
        page = await browser.page()
        await page.add_init_script(NOTICES)
        await page.goto(home(served))
        await page.get_by_role("button", name="Settings").click()
        await page.get_by_label("Notify me when an approval waits").check()
        await page.evaluate("window.away = true")
        await say(page, "Fail.")
        await expect(page.locator(".session-state.pulse")).to_be_visible()
        fails.set()
        await page.wait_for_function("() => window.notices.length === 1")
        assert await page.evaluate("window.notices[0].title") == "A run has failed"
