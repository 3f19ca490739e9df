"""The looks in fixtures/page/looks: boxes as JSON, and small pictures, compared by the mean colours of blocks."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests import ROOT
from tests.support.page.browser import PHONE, WIDE, Browsing, Page
from tests.support.page.engines import ChromiumWindow
from tests.support.page.looks import LOOKS, Look, Stage, measured

FOLDER = ROOT / "fixtures/page/looks"
BOXES = FOLDER / "boxes.json"
MOST_APART_PX = 2.0
# The mean of a block says little of how letters are drawn, and much of where they are and in what colour.
BLOCK = 8  # of the small picture: 32 px of the page
MOST_APART = 7  # of 255, in one channel of one block
MOST_BLOCKS = 2  # further apart than that
# Both need a page of its own, whose policy allows no pictures.
SMALL = """async (png) => {
  const bytes = Uint8Array.from(atob(png), (one) => one.charCodeAt(0));
  const full = await createImageBitmap(new Blob([bytes], { type: "image/png" }));
  const canvas = new OffscreenCanvas(Math.ceil(full.width / 4), Math.ceil(full.height / 4));
  const paper = canvas.getContext("2d");
  paper.imageSmoothingQuality = "high";
  paper.drawImage(full, 0, 0, canvas.width, canvas.height);
  const blob = await canvas.convertToBlob({ type: "image/webp", quality: 0.85 });
  const written = new Uint8Array(await blob.arrayBuffer());
  return btoa(Array.from(written, (one) => String.fromCharCode(one)).join(""));
}"""
APART = """async ([before, now, block, most]) => {
  const blocks = async (picture) => {
    const bytes = Uint8Array.from(atob(picture), (one) => one.charCodeAt(0));
    const bitmap = await createImageBitmap(new Blob([bytes], { type: "image/webp" }));
    const paper = new OffscreenCanvas(bitmap.width, bitmap.height).getContext("2d");
    paper.drawImage(bitmap, 0, 0);
    const { data, width, height } = paper.getImageData(0, 0, bitmap.width, bitmap.height), found = new Map();
    for (let y = 0; y + block <= height; y += block) for (let x = 0; x + block <= width; x += block) {
      const sum = [0, 0, 0];
      for (let down = 0; down < block; down++) for (let along = 0; along < block; along++) {
        const at = ((y + down) * width + x + along) * 4;
        for (const one of [0, 1, 2]) sum[one] += data[at + one];
      }
      found.set(`${x * 4},${y * 4}`, sum.map((one) => one / block ** 2));
    }
    return found;
  };
  const [old, fresh] = [await blocks(before), await blocks(now)];
  if (old.size !== fresh.size) return ["the size"];
  return [...old].map(([place, colour]) => [place, Math.max(...colour.map((one, at) =>
    Math.abs(one - fresh.get(place)[at])))]).filter(([, apart]) => apart > most)
    .sort((a, b) => b[1] - a[1]).map(([place, apart]) => `${place} by ${Math.round(apart)}`);
}"""


class Pictures:
    """Pictures made small and compared, on an empty page."""

    def __init__(self, page: Page) -> None:
        self._page = page

    async def small(self, png: bytes) -> bytes:
        return base64.b64decode(await self._page.evaluate(SMALL, base64.b64encode(png).decode()))

    async def apart(self, before: bytes, now: bytes) -> list[str]:
        """Return the blocks whose colours are too far apart, the furthest first; nothing if few are."""
        pictures = [base64.b64encode(one).decode() for one in (before, now)]
        found: list[str] = await self._page.evaluate(APART, [*pictures, BLOCK, MOST_APART])
        return found if len(found) > MOST_BLOCKS or found == ["the size"] else []


def stored_boxes() -> dict[str, dict[str, list[float]]]:
    found: dict[str, dict[str, list[float]]] = json.loads(BOXES.read_text()) if BOXES.exists() else {}
    return found


def boxes_apart(
    before: dict[str, list[float]], now: dict[str, list[float]], most: float = MOST_APART_PX, share: float = 0.0
) -> list[str]:
    """Return the parts that have come, gone, or moved by more pixels than that, and this share of each value."""
    gone = [f"{part}: {before.get(part)} became {now.get(part)}" for part in sorted(before.keys() ^ now.keys())]
    moved = [
        part
        for part in before.keys() & now.keys()
        if any(abs(a - b) > most + share * b for a, b in zip(before[part], now[part], strict=True))
    ]
    return gone + [f"{part}: {before[part]} became {now[part]}" for part in moved]


@asynccontextmanager
async def windows(browser: Browsing) -> AsyncGenerator[dict[str, ChromiumWindow], None]:
    """A wide window, and a phone that is touched."""
    options: dict[str, dict[str, Any]] = {
        "light": {"viewport": WIDE},
        "phone": {"viewport": PHONE, "has_touch": True, "is_mobile": True},
    }
    made = {name: ChromiumWindow(await browser.page(**options[name], locale="en-US")) for name in options}
    yield made | {"dark": made["light"]}


async def shown(
    stage: Stage, windows: dict[str, ChromiumWindow], look: Look
) -> AsyncGenerator[tuple[str, dict[str, list[float]], list[str], bytes], None]:
    """Show a look in each way in which it is compared: the name, the boxes, what is wrong, and the picture."""
    for way in (look.also,) if look.narrow else ("light", look.also):
        window = windows[way]
        if way != "dark":
            await stage.show(window, look)
        await window.evaluate(f"document.documentElement.dataset.theme = {'dark' if way == 'dark' else 'light'!r}")
        boxes, wrong = await measured(window, look, touch=way == "phone")
        yield f"{look.name}-{way}", boxes, wrong, await window.screenshot()


def path_of(name: str) -> Path:
    return FOLDER / f"{name}.webp"


__all__ = ["LOOKS", "Pictures", "boxes_apart", "path_of", "shown", "stored_boxes", "windows"]
