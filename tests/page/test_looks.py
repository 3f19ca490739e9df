"""How each state of the page looks: its parts' boxes and a small picture, as fixtures/page/looks has them.

`python -m tests.tasks.page_looks` makes them anew, after a change that is meant.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, aclosing
from pathlib import Path

import pytest

from tests.support.nightly import only_at_night
from tests.support.page.browser import SHOTS, STORY_S, browsing
from tests.support.page.engines import ENGINES, engine
from tests.support.page.look_pictures import Pictures, boxes_apart, path_of, shown, stored_boxes, windows
from tests.support.page.looks import LOOKS, measured, stage

AGAIN = "If that is meant: python -m tests.tasks.page_looks"


@pytest.mark.timeout(3 * STORY_S)  # it shows 14 states, twice each
@pytest.mark.usefixtures("chromium")
async def test_each_state_of_the_page_looks_as_it_did(tmp_path: Path) -> None:
    stored, found, seen = stored_boxes(), list[str](), set[str]()
    async with (
        asyncio.timeout(2.5 * STORY_S),
        browsing() as browser,
        stage(tmp_path) as played,
        windows(browser) as opened,
    ):
        browser.expected.append("401")  # of who has not signed in
        pictures = Pictures(await browser.page())
        for look in LOOKS:
            async with aclosing(shown(played, opened, look)) as ways:
                async for name, boxes, wrong, png in ways:
                    seen.add(name)
                    apart = await pictures.apart(path_of(name).read_bytes(), await pictures.small(png))
                    if apart:
                        (tmp_path / f"{name}.png").write_bytes(png)
                        apart = [f"another picture at {', '.join(apart[:6])}: see {tmp_path}/{name}.png"]
                    found += [f"{name}: {one}" for one in (*wrong, *boxes_apart(stored.get(name, {}), boxes), *apart)]
    assert not found, "\n".join([*found, AGAIN])
    assert seen == stored.keys()


MUTATE = """(text) => {
  const sheet = new CSSStyleSheet();
  sheet.replaceSync(text);
  document.adoptedStyleSheets = [...document.adoptedStyleSheets, sheet];
}"""
# What moves little or is a thin line is seen by its box alone.
MUTATIONS: tuple[tuple[str, list[str], bool | None], ...] = (
    ("", [], False),
    (".welcome-title { letter-spacing: 0.05px }", [], False),  # as another renderer of fonts has it
    (":root { --accent: #0b3f8c }", [], True),
    (":root { --raised: #e4e0d6 }", [], True),
    (".composer-box { margin-bottom: 8px }", ["#conversation", ".composer-box"], None),
    (".welcome { translate: 0 8px }", [".examples button", ".welcome-demonstration", ".welcome-title"], True),
)


@pytest.mark.usefixtures("chromium")
async def test_a_part_that_has_moved_or_changed_its_colour_is_seen(tmp_path: Path) -> None:
    async with asyncio.timeout(STORY_S), browsing() as browser, stage(tmp_path) as played, windows(browser) as opened:
        window, look, pictures = opened["light"], LOOKS[0], Pictures(await browser.page())
        for style, moved, differs in MUTATIONS:
            await played.show(window, look)
            if not style:
                before, picture = (await measured(window, look))[0], await pictures.small(await window.screenshot())
            await window.page.evaluate(MUTATE, style)
            now = (await measured(window, look))[0]
            assert sorted(one.partition(":")[0] for one in boxes_apart(before, now)) == moved, style
            apart = await pictures.apart(picture, await pictures.small(await window.screenshot()))
            assert differs in (None, bool(apart)), (style, apart)


# Of another engine's box: lines of text have other heights there, which add up.
NEAR_PX, NEAR_SHARE = 6.0, 0.01
HEIGHTS = {390: 844, 1280: 800, 1920: 1080}


@only_at_night
@pytest.mark.anyio
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("language", ["en", "de"])
@pytest.mark.parametrize("width", HEIGHTS)
async def test_each_state_is_whole_in_each_engine(tmp_path: Path, width: int, language: str) -> None:
    found = list[str]()
    SHOTS.mkdir(parents=True, exist_ok=True)
    async with AsyncExitStack() as stack:
        played = await stack.enter_async_context(stage(tmp_path))
        opened = {name: await stack.enter_async_context(engine(name, tmp_path)) for name in ENGINES}
        windows_of = {name: await browser.window() for name, browser in opened.items()}
        for window in windows_of.values():
            await window.resize(width, HEIGHTS[width])
        for look in LOOKS:
            if look.narrow and width != 390:
                continue
            boxes = dict[str, dict[str, list[float]]]()
            for name, window in windows_of.items():
                state = f"{look.name}-{width}-{language}-{name}"
                await played.show(window, look, language=language)
                for theme in ("light", "dark"):
                    await window.evaluate(f"document.documentElement.dataset.theme = {theme!r}")
                    boxes[name], wrong = await measured(window, look)
                    found += [f"{state} {theme}: {one}" for one in wrong]
                    (SHOTS / f"look-{state}-{theme}.png").write_bytes(await window.screenshot())
                apart = boxes_apart(boxes["chromium"], boxes[name], NEAR_PX, NEAR_SHARE)
                for one in apart:
                    print(f"{state}: {one}", flush=True)
                found += [f"{state}: {one}" for one in apart]
    assert not found, "\n".join(found)
