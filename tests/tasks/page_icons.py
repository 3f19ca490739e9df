"""`python -m tests.tasks.page_icons`: draw the icons of the installed page from routes/page/icon.svg, with Chromium."""

from __future__ import annotations

import asyncio
from base64 import b64encode

from routes.page import FOLDER
from tests.support.page.chromium import launched

ICONS = {"icon-192.png": (192, 0), "icon-512.png": (512, 0), "icon-maskable.png": (512, 64)}  # size, space around it
COLOUR = "#0b5c55"


async def main() -> None:
    picture = b64encode((FOLDER / "icon.svg").read_bytes()).decode()
    async with launched() as browser:
        for name, (size, space) in ICONS.items():
            page = await browser.new_page(viewport={"width": size, "height": size})
            back = COLOUR if space else "transparent"
            image = f'<img src="data:image/svg+xml;base64,{picture}" width="{size - 2 * space}">'
            await page.set_content(f'<body style="margin:{space}px;background:{back}">{image}')
            await page.screenshot(path=FOLDER / name, omit_background=True)


if __name__ == "__main__":
    asyncio.run(main())
