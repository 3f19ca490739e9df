"""`python -m tests.tasks.page_shots`: the pictures of docs/page.md, as WebP: a scripted model and real commands."""

from __future__ import annotations

import asyncio
import base64
import tempfile
from pathlib import Path
from typing import Any

from app.core.provider import CallForm
from app.models.scripted import Reply, Scripted
from parsing import Call, Thought
from tests import ROOT
from tests.support.page.browser import (
    PHONE,
    REFUSED_PROBE,
    WIDE,
    Browsing,
    Page,
    browsing,
    choose,
    expect,
    home,
    say,
    shot,
)
from tests.support.page.chromium import launched
from tests.support.page.stories import held, let_go, turns
from tests.support.server.serving import serving

FOLDER = ROOT / "fixtures/page/shots"
QUALITY = 82
MOST_BYTES = 120_000

WHY = """The parser reads each chunk once, so its time grows with the length of the text and nothing else:

```python
def feed(self, text: str) -> list[Event]:
    # What could still become a marker is held back.
    ready, self._held = split_at_marker(self._held + text)
    return list(self._events(ready))
```

I run the tests, to be sure.

"""
MAKEFILE = "SHELL := bash\ntest:\n\t@python3 check.py\n\t@" + held() + "\n"
CHECK = r"""
for name, seconds in [("parsing", 12), ("tools", 31), ("app", 54), ("routes", 88)]:
    print(f"\033[36m{name:8}\033[0m {seconds * 7} modules")
    for n, subject in enumerate(["cases", "faults", "limits"], 1):
        print(f"  \033[32mPASS\033[0m test_{name}_{subject}.py \033[90m{seconds * n} ms\033[0m")
print("  \033[33mSLOW\033[0m test_routes_kill.py \033[90m4,210 ms\033[0m")
print("\033[1m 87%\033[0m \033[32m" + "\u2501" * 17 + "\033[90m" + "\u2501" * 3 + "\033[0m 412/474", end="", flush=True)
"""
PUSH = "git add --all && git commit -m 'Feed reads each chunk once' && git push origin main"


DIAGRAM = r"""A request waits $t_w$ in the queue and $t_s$ at the model. With $n$ requests at a time

$$ \bar t = \frac{1}{n} \sum_{i=1}^{n} \left( t_{w,i} + t_{s,i} \right) $$

```mermaid
flowchart LR
  C[Client] --> Q[[Queue]] --> M{Model}
  M -->|call| G[Gate] --> S[Sandbox] --> M
  M -->|answer| C
```

| part | bound |
| --- | --- |
| queue | 100 requests |
| call | 120 s |
"""
TABLE = "month,runs,tokens\n" + "".join(f"2026-{month:02},{month * 137},{month * 91_000}\n" for month in range(1, 12))


def command(words: str) -> Call:
    """A native call, so that code in the answer is only shown."""
    return Call(0, "bash", {"command": words}, "native")


def story() -> list[Reply]:
    return [
        (Thought("The feed is called once per chunk. I look at what it keeps."), WHY, command("make test")),
        "All 474 tests pass.",
        ("I publish it.\n\n", command(PUSH)),
    ]


async def picture(page: Page, name: str) -> None:
    """The page as it is, as WebP: a quarter of a PNG's size."""
    devtools = await page.context.new_cdp_session(page)
    taken = await devtools.send("Page.captureScreenshot", {"format": "webp", "quality": QUALITY})
    written = base64.b64decode(taken["data"])
    assert len(written) < MOST_BYTES, f"{name} has {len(written):,} bytes"
    await shot(page, f"readme-{name}")
    FOLDER.mkdir(parents=True, exist_ok=True)
    (FOLDER / f"{name}.webp").write_bytes(written)


async def told(browser: Browsing, folder: Path, running: str, asking: str = "", **options: Any) -> None:
    """The story up to its question, with a picture of the command that runs and of the question."""
    (folder / "work").mkdir()
    (folder / "work/Makefile").write_text(MAKEFILE)
    (folder / "work/check.py").write_text(CHECK)
    async with serving(folder, Scripted(story(), model="qwen3-coder", call_form=CallForm.NATIVE)) as served:
        page = await browser.page(**options)
        await page.goto(home(served))
        await say(page, "Why is the parser fast? Prove it.")
        await expect(turns(page).locator(".tail").last).to_contain_text("412/474")
        await page.mouse.move(0, 0)
        await picture(page, running)
        let_go(folder)
        if asking:
            await expect(turns(page).get_by_text("All 474 tests pass.")).to_be_visible()
            await page.get_by_label("Approvals").select_option("ask")
            await say(page, "Then publish the change.")
            await expect(page.locator("#approvals .approval")).to_be_visible()
            await expect(page.locator("#approvals[data-settling]")).to_have_count(0)
            await page.mouse.move(0, 0)
            await picture(page, asking)
        await page.close()


async def rendered(browser: Browsing, folder: Path) -> None:
    """An answer with a formula, a table and the preview of a diagram."""
    browser.expected.append(REFUSED_PROBE)
    async with serving(folder, Scripted([DIAGRAM], model="qwen3-coder")) as served:
        page = await browser.page(viewport=WIDE)
        await page.goto(home(served))
        await say(page, "How long does a request take? Draw its way.")
        await page.get_by_role("button", name="Preview").click()
        frame = page.frame_locator("iframe[title]")
        await expect(frame.get_by_text("Sandbox")).to_be_visible()
        await expect(turns(page).locator("math").first).to_be_visible()
        await page.mouse.move(0, 0)
        await picture(page, "rendering")
        await page.close()


async def looked_into(browser: Browsing, folder: Path) -> None:
    """The files of the workspace beside the chat, with a table."""
    work = folder / "work"
    (work / "reports").mkdir(parents=True)
    (work / "reports/usage.csv").write_text(TABLE)
    (work / "notes.md").write_text("# Notes\n")
    (work / "Makefile").write_text(MAKEFILE)
    async with serving(folder, Scripted(["There are three files; `reports/usage.csv` has the usage."])) as served:
        page = await browser.page(viewport=WIDE)
        await page.goto(home(served))
        await say(page, "What is in my workspace?")
        await choose(page, "Files")
        await page.get_by_role("treeitem", name="reports").first.click()
        await page.get_by_role("treeitem", name="usage.csv").last.click()
        await expect(page.get_by_role("cell", name="2026-11")).to_be_visible()
        await page.mouse.move(0, 0)
        await picture(page, "workspace")
        await page.close()


async def main() -> None:
    dark: dict[str, Any] = {
        "viewport": PHONE,
        "has_touch": True,
        "is_mobile": True,
        "color_scheme": "dark",
        "device_scale_factor": 2,
    }
    async with launched(), browsing() as browser:
        with tempfile.TemporaryDirectory() as folder:
            await told(browser, Path(folder), "run", "approval", viewport=WIDE)
        with tempfile.TemporaryDirectory() as folder:
            await told(browser, Path(folder), "phone", "", **dark)
        with tempfile.TemporaryDirectory() as folder:
            await rendered(browser, Path(folder))
        with tempfile.TemporaryDirectory() as folder:
            await looked_into(browser, Path(folder))


if __name__ == "__main__":
    asyncio.run(main())
