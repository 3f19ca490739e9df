"""`python -m tests.tasks.page_looks`: makes anew what the page is compared with, and prints what changed."""

from __future__ import annotations

import asyncio
import json
import tempfile
from contextlib import aclosing
from pathlib import Path

from tests.support.page.browser import browsing
from tests.support.page.chromium import launched
from tests.support.page.look_pictures import BOXES, FOLDER, Pictures, boxes_apart, path_of, shown, stored_boxes, windows
from tests.support.page.looks import LOOKS, stage


async def main() -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    before, now = stored_boxes(), dict[str, dict[str, list[float]]]()
    with tempfile.TemporaryDirectory() as folder:
        async with launched(), browsing() as browser, stage(Path(folder)) as played, windows(browser) as opened:
            browser.expected.append("401")
            pictures = Pictures(await browser.page())
            for look in LOOKS:
                async with aclosing(shown(played, opened, look)) as ways:
                    async for name, boxes, wrong, png in ways:
                        now[name], small, path = boxes, await pictures.small(png), path_of(name)
                        changed = boxes_apart(before.get(name, {}), boxes)
                        if not path.exists() or await pictures.apart(path.read_bytes(), small):
                            path.write_bytes(small)
                            changed.append("another picture")
                        for line in changed + [f"WRONG: {one}" for one in wrong]:
                            print(f"{name}: {line}", flush=True)
    BOXES.write_text(json.dumps(now, indent=1) + "\n")
    for path in {*FOLDER.glob("*.webp")} - {path_of(name) for name in now}:
        path.unlink()


if __name__ == "__main__":
    asyncio.run(main())
