"""What people and models say, on the page: Markdown as it comes, code, thoughts, long messages, pictures."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from app.core.provider import CallForm
from app.models.scripted import Pause, Reply, Scripted
from parsing import Thought
from tests import ROOT
from tests.support.models.pictures import image_part, png, text_part
from tests.support.nightly import at_night
from tests.support.page.browser import browsing, expect, home, say, shot
from tests.support.page.commonmark import OUTLINES as EXAMPLES
from tests.support.page.commonmark import STREAMS, outline
from tests.support.server.serving import serving

pytestmark = pytest.mark.usefixtures("chromium")

FIXTURES = ROOT / "fixtures/page"
ROWS = json.loads((FIXTURES / "markdown.json").read_text())
COMMONMARK = json.loads((FIXTURES / "commonmark.json").read_text())
SNIPPETS = json.loads((FIXTURES / "snippets.json").read_text())["snippets"]
HOSTILE = json.loads((FIXTURES / "hostile.json").read_text())
CODE = "\n".join(f"value_{number} = {number}  # a comment" for number in range(60))
ANSWER = f"""# A plan

See [the docs](https://docs.example/a) or [https://bank.example](https://evil.example/login).

```python
{CODE}
```

| a | b |
|---|---|
| 1 | 2 |

The end of it."""

# Draws texts whole and letter by letter, as outlines: `<p|words>`, `<a href|words>`, `<code py|text>`.
OUTLINES = """async (texts) => {
  const { Markdown } = await import("/page/js/markdown/markdown.js");
  const named = (node) => [node.localName, ...node.classList].join(".");
  const told = (node) => ["href", "title", "start", "aria-label", "scope"]
    .map((name) => (node.hasAttribute(name) ? ` ${node.getAttribute(name)}` : "")).join("");
  const inside = (node) => [...node.childNodes].map(outline).join("");
  const outline = (node) => {
    if (node.nodeType === Node.TEXT_NODE) return node.data;
    if (node.matches(".markdown-part, .table-box, .code-part")) return inside(node);
    const code = node.matches("figure, .formula") && node.querySelector("code");
    if (code) return `<code ${code.dataset.language ?? ""}|${code.textContent}>`;
    return node.localName === "br" ? "<br>" : `<${named(node)}${told(node)}|${inside(node)}>`;
  };
  const draw = (pieces) => {
    const markdown = new Markdown();
    for (const piece of pieces) {
      markdown.write(piece);
      if (pieces.length > 1) markdown.draw();
    }
    markdown.end();
    return inside(markdown.element);
  };
  return texts.map((text) => ({ whole: draw([text]), streamed: draw(text.split("")) }));
}"""

# Follows the first footnote there and back; returns the words of what had the focus.
FOLLOWED = """async (text) => {
  const { Markdown } = await import("/page/js/markdown/markdown.js");
  const markdown = new Markdown(), address = location.href;
  markdown.write(text);
  markdown.end();
  document.body.append(markdown.element);
  const focused = [];
  for (const name of [".note-mark span", ".note-back"]) {
    markdown.element.querySelector(name).dispatchEvent(new KeyboardEvent("keydown", { key: "Enter" }));
    focused.push(document.activeElement.textContent);
  }
  markdown.element.remove();
  return [...focused, location.href === address];
}"""

# How often what is counted happens for so many pieces of a text: `[characters read, drawn, frames]`.
COUNTS = """async ([text, size]) => {
  const { Blocks } = await import("/page/js/markdown/blocks.js");
  const { Markdown } = await import("/page/js/markdown/markdown.js");
  const { Answer } = await import("/page/js/chat/message.js");
  const counted = { read: 0, draws: 0, frames: 0 };
  const { line, more } = Blocks.prototype, { draw } = Markdown.prototype;
  Blocks.prototype.line = function (...given) { counted.read += given[0].length; return line.apply(this, given); };
  Blocks.prototype.more = function (...given) { counted.read += given[0].length; return more.apply(this, given); };
  Markdown.prototype.draw = function () { counted.draws += 1; return draw.apply(this); };
  let counting = true;
  const frame = () => { counted.frames += 1; if (counting) requestAnimationFrame(frame); };
  requestAnimationFrame(frame);
  const answer = new Answer();
  document.querySelector(".runs").append(answer.element);
  const count = Math.ceil(text.length / size);
  const pieces = Array.from({ length: count }, (_, at) => text.slice(at * size, (at + 1) * size));
  for (const [place, piece] of pieces.entries()) {
    answer.add(piece);
    if (place % 100 === 99) await new Promise(requestAnimationFrame);
  }
  answer.add("\\n\\nThat was all.\\n\\n");
  answer.close();
  while (!answer.element.textContent.includes("That was all.")) await new Promise(requestAnimationFrame);
  counting = false;
  Object.assign(Blocks.prototype, { line, more });
  Markdown.prototype.draw = draw;
  const long = Math.max(...[...answer.element.querySelectorAll(".markdown-part")].map((part) => part.children.length));
  answer.element.remove();
  return { ...counted, pieces: pieces.length, long };
}"""


async def test_markdown_is_drawn_alike_whole_and_letter_by_letter(tmp_path: Path) -> None:
    texts = [row["text"] for row in ROWS]
    hostile = [row["text"] * min(row.get("times", 1), 60) for row in HOSTILE]
    async with serving(tmp_path, Scripted(["Hello."], repeat=True)) as served, browsing() as browser:
        page = await browser.page()
        await page.goto(home(served))
        drawn = await page.evaluate(OUTLINES, texts)
        for row, found in zip(ROWS, drawn, strict=True):
            assert found["whole"] == row["drawn"], row["name"]
            assert found["streamed"] == row["drawn"], row["name"]
        for text, found in zip(hostile, await page.evaluate(OUTLINES, hostile), strict=True):
            assert found["streamed"] == found["whole"], text[:200]


async def test_examples_of_commonmark_and_what_models_write_are_drawn_as_meant(tmp_path: Path) -> None:
    examples = COMMONMARK["examples"]
    texts = [(row["markdown"], outline(row.get("shown", row["html"]))) for row in examples]
    async with serving(tmp_path, Scripted(["Hello."], repeat=True)) as served, browsing() as browser:
        page = await browser.page()
        await page.goto(home(served))
        drawn = await page.evaluate(EXAMPLES, texts + [(row["text"], row["drawn"]) for row in SNIPPETS])
        streamed = await page.evaluate(STREAMS, [[row["text"] for row in SNIPPETS], 4, True])
        alerts = await page.evaluate(STREAMS, [[row["text"] for row in ROWS if "an alert" in row["name"]], 1, True])
        followed = await page.evaluate(FOLLOWED, "A[^1].\n\n[^1]: The note.")
    assert 0 < sum(back for back, _ in streamed) <= 60, "nearly all that was shown stays"
    assert [back for back, _ in alerts] == [0], "letter by letter, no alert is a quote first"
    assert followed == ["The note. ↩", "1", True]
    for found in drawn:
        assert found["streamed"] == found["whole"]
    outside = [row["section"] != "HTML blocks" for row in examples]
    wrong = {
        row["number"]: found
        for row, found, counts in zip(examples, drawn, outside, strict=False)
        if counts and found["whole"] != found["expected"]
    }
    assert {row["number"] for row in COMMONMARK["deviations"]} == set(wrong), wrong
    assert all(row["reason"] for row in COMMONMARK["deviations"])
    assert (len(examples), sum(row["section"] not in ("HTML blocks", "Raw HTML") for row in examples)) == (652, 588)
    for row, found in zip(SNIPPETS, drawn[len(examples) :], strict=True):
        assert found["whole"] == found["expected"], row["name"]
        assert "markdown_it" not in row or row["worse"], row["name"]


async def test_each_character_is_read_once_and_each_picture_is_drawn_once(tmp_path: Path) -> None:
    text = ANSWER * 400
    async with serving(tmp_path, Scripted(["Hello."], repeat=True)) as served, browsing() as browser:
        page = await browser.page()
        await page.goto(home(served))
        short, long, words = at_night((60_000, 500_000, 5_000), (12_000, 100_000, 1_000))
        deltas = await page.evaluate(COUNTS, [text[:short], 6])
        assert deltas["pieces"] == short // 6
        assert deltas["draws"] <= deltas["frames"] + 2
        # What is more than the text is the line that is being written, drawn once per picture.
        assert deltas["read"] < short * 1.1 + deltas["draws"] * 200
        whole = await page.evaluate(COUNTS, [text[:long], long])
        assert whole["draws"] <= whole["frames"] + 2
        assert whole["read"] < long * 1.1 + whole["draws"] * 200
        assert whole["long"] <= 30  # what is laid out as one has an end
        line = await page.evaluate(COUNTS, ["word and **bold** [x] " * words, 500])
        assert line["read"] < words * 22 * 1.1 + line["draws"] * 4_200


async def test_an_answer_its_code_and_its_thoughts(tmp_path: Path) -> None:
    go_on = asyncio.Event()
    script: list[Reply] = [[Thought("First I look."), Pause(go_on), Thought(" Then I say."), ANSWER]]
    async with serving(tmp_path, Scripted(script, call_form=CallForm.NATIVE)) as served, browsing() as browser:
        context = await browser.context()
        await context.grant_permissions(["clipboard-read", "clipboard-write"])
        page = await context.new_page()
        await page.goto(home(served))
        await say(page, "What\nis the plan?")
        thought = page.locator("details.reasoning")
        await expect(thought.get_by_text("Thinking…")).to_be_visible()
        go_on.set()
        answer = page.locator(".answer")
        await expect(answer.get_by_text("The end of it.")).to_be_visible()
        await expect(thought.locator("summary")).to_contain_text("Thought")
        await expect(thought.get_by_text("First I look. Then I say.")).to_be_hidden()
        await thought.locator("summary").click()
        await expect(thought.get_by_text("First I look. Then I say.")).to_be_visible()

        assert await page.locator(".user-text").inner_text() == "What\nis the plan?"
        await expect(answer.get_by_role("heading", name="A plan", level=3)).to_be_visible()
        link = answer.get_by_role("link", name="the docs")
        await expect(link).to_have_attribute("href", "https://docs.example/a")
        await expect(link).to_have_attribute("rel", "noopener noreferrer")
        await expect(answer.get_by_role("link", name="https://bank.example (evil.example)")).to_be_visible()
        await expect(answer.get_by_role("columnheader", name="a")).to_be_visible()

        code = answer.locator("figure.code")
        await expect(code.locator(".c-comment").last).to_be_attached()
        assert await code.locator("code").text_content() == CODE + "\n"
        more = code.get_by_role("button", name="Show all 60 lines")
        folded = await code.bounding_box()
        await more.click()
        shown = await code.bounding_box()
        assert folded and shown and shown["height"] > folded["height"] * 1.5
        await code.get_by_role("button", name="Copy code").click()
        await expect(code.get_by_text("Copied")).to_be_visible()
        assert await page.evaluate("navigator.clipboard.readText()") == CODE
        await answer.get_by_role("button", name="Copy answer as Markdown").click()
        await expect(answer.locator(".answer-tools").get_by_text("Copied")).to_be_visible()
        assert await page.evaluate("navigator.clipboard.readText()") == ANSWER
        await expect(code.get_by_text("Copied")).to_have_count(0)
        await page.evaluate("void (navigator.clipboard.writeText = () => Promise.reject(new Error('not allowed')))")
        await code.get_by_role("button", name="Copy code").click()
        await expect(code.get_by_text("Copied")).to_be_visible()
        assert await page.evaluate("navigator.clipboard.readText()") == CODE
        await shot(page, "words")
        await page.reload()
        await expect(answer.get_by_text("The end of it.")).to_be_visible()
        await expect(thought.locator("summary")).to_have_text("Thoughts")


async def test_what_a_person_says_is_shown_as_it_is_with_its_files(tmp_path: Path) -> None:
    async with serving(tmp_path, Scripted(["Seen."], repeat=True)) as served, browsing() as browser:
        words = text_part("**no** Markdown <b>here</b>\n" + "a line\n" * 40)
        message = [image_part(png(), name="cat <b>.png"), words]
        session = (await served.chat(message, without_vision="describe"))[0]["session"]
        page = await browser.page()
        await page.goto(f"{home(served)}#{session}")
        said = page.locator(".user-message")
        await expect(said.get_by_text("**no** Markdown <b>here</b>")).to_be_visible()
        image = said.get_by_role("img", name="cat <b>.png")
        await expect(said.locator("img[src^='blob:']")).to_be_visible()
        low = await said.bounding_box()
        await said.get_by_role("button", name="Show all").click()
        high = await said.bounding_box()
        assert low and high and high["height"] > low["height"] * 1.5
        await said.get_by_role("button", name="Picture: cat <b>.png").click()
        await expect(page.get_by_role("dialog", name="cat <b>.png")).to_be_visible()
        await page.keyboard.press("Escape")
        await expect(page.get_by_role("dialog")).to_have_count(0)
        await expect(image).to_be_visible()

        told = "The background job job_1 has ended after 3.0 s: finished with exit code 0.\n\nIts command was:\nmake"
        await served.chat(told, session=session)
        ended = page.get_by_role("group", name="From a background job")
        await expect(ended.get_by_text("finished with exit code 0.").first).to_be_visible()
        await expect(ended.get_by_text("Its command was:")).to_be_hidden()
