"""What libraries draw on the page: the colours of code, formulas; and what it shows where they cannot."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from app.core.provider import CallForm
from app.models.scripted import Pause, Reply, Scripted
from tests.support.page.browser import browsing, expect, home, say
from tests.support.server.serving import serving

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("chromium")]

# Names and aliases that models write on code blocks, 70, by what is coloured in each of them.
NAMES = {
    'if (x) return "a"; 1': "bash sh zsh powershell ps1 bat python py javascript js jsx typescript ts tsx json jsonc "
    "json5 jsonl rust rs go c cpp c++ csharp c# java kotlin swift ruby rb perl lua r scala dart elixir "
    "haskell julia groovy",
    "$ ls | echo x": "shell console shell-session",
    '<p class="a">b</p>': "html xml svg vue",
    "a { color: red; }": "css scss",
    "SELECT 'a' FROM b;": "sql postgresql mysql sqlite",
    'a = "b"\nc: "d"': "yaml yml toml ini env",
    "# A\n**b**": "markdown md",
    "FROM a\nRUN b": "dockerfile",
    "all:\n\techo $@": "makefile",
    "server { listen 80; }": "nginx",
    "+a\n-b": "diff",
    "query { a }": "graphql",
    r"\frac{a}{b}": "latex",
    '<?php echo "a";': "php",
    "GET /a HTTP/1.1\nHost: b": "http",
    '(defn a [] "b")': "clojure",
    'syntax = "proto3";': "protobuf",
}
SHELL = """cat <<'EOF' > "$HOME/x"
it's $5
EOF
echo "${a}" # done"""
YAML = """run: |
  echo "it's" # no comment
on: true # a comment"""
BOMB = r"$\def\a{" + "x" * 99 + r"}\def\b{" + r"\a" * 40 + r"}\b$"
MATH = (
    rf"""Own: $\newcommand{{\R}}{{\mathbb{{R}}}} x \in \R$, and {BOMB}.

"""
    + r"""It is $5 and $10, US$7, from $5-$9, $20 or 30$, and $x_1^2$, \(\frac{a}{b}\).

$$
\int_0^1 x\,dx
$$

Mistaken: $\frac{a$ and $\href{https://e.example}{x}$ and $\label{composer-text} y$.

The end."""
)


def blocks(*texts: tuple[str, str]) -> str:
    return "\n\n".join(f"```{name}\n{text}\n```" for name, text in texts)


async def test_code_has_the_colours_of_its_language(tmp_path: Path) -> None:
    named = [(name, text) for text, names in NAMES.items() for name in names.split()]
    assert len({name for name, _ in named}) == len(named) == 70
    answer = blocks(*named, ("bash", SHELL), ("yaml", YAML), ("none", "if"))
    script = Scripted([f"{answer}\n\nThe end."], call_form=CallForm.NATIVE)
    async with serving(tmp_path, script) as served, browsing() as browser:
        page = await browser.page()
        await page.goto(home(served))
        await say(page, "Show them.")
        await expect(page.locator(".answer").get_by_text("The end.")).to_be_visible()
        code = page.locator("figure.code code")
        await expect(code).to_have_count(73)
        for at, (name, _) in enumerate(named):
            await expect(code.nth(at).locator("span[class^='c-']").first, name).to_be_attached()
        shell, yaml, none = code.nth(70), code.nth(71), code.nth(72)
        assert await shell.text_content() == f"{SHELL}\n" and await yaml.text_content() == f"{YAML}\n"
        comments = [await one.locator(".c-comment").all_text_contents() for one in (shell, yaml, none)]
        assert [[text.strip() for text in each] for each in comments] == [["# done"], ["# a comment"], []]
        assert "it's $5" in "".join(await shell.locator(".c-text").all_text_contents())


async def test_code_is_coloured_while_it_grows_and_stays_readable_without(tmp_path: Path) -> None:
    grown = asyncio.Event()
    script: list[Reply] = [
        ["```python\n", "x = 'a'  # one\n" * 20, "y = ", Pause(grown), "2\n```\n\nThe end."],
        [blocks(("python", "b = 'c'"), ("rust", "let x = 1;")), "\n\nThe second end."],
    ]
    async with serving(tmp_path, Scripted(script, call_form=CallForm.NATIVE)) as served, browsing() as browser:
        page = await browser.page()
        await page.goto(home(served))
        await say(page, "Go.")
        code = page.locator("figure.code code")
        await expect(code.locator(".c-comment")).to_have_count(20)
        assert not grown.is_set()
        grown.set()
        await expect(page.get_by_text("The end.")).to_be_visible()
        await expect(code.locator(".c-number")).to_have_count(1)
        assert await code.text_content() == "x = 'a'  # one\n" * 20 + "y = 2\n"
        await page.route("**/rust.min.js", lambda route: route.abort())
        browser.expected += ["ERR_FAILED", "rust.min.js", "Failed to fetch dynamically"]
        await say(page, "Again.")
        await expect(page.get_by_text("The second end.")).to_be_visible()
        await expect(code).to_have_count(3)
        assert await code.nth(2).inner_text() == "let x = 1;\n"


async def test_formulas_are_drawn_and_copied_as_they_were_written(tmp_path: Path) -> None:
    closing = asyncio.Event()
    script: list[Reply] = [["An open $x^2", Pause(closing), "$ formula.\n\n", MATH]]
    async with serving(tmp_path, Scripted(script, call_form=CallForm.NATIVE)) as served, browsing() as browser:
        context = await browser.context()
        await context.grant_permissions(["clipboard-read", "clipboard-write"])
        page = await context.new_page()
        await page.goto(home(served))
        await say(page, "Show me.")
        answer = page.locator(".answer")
        await expect(answer.get_by_text("An open $x^2")).to_be_visible()
        closing.set()
        await expect(answer.locator("math")).to_have_count(6)
        await expect(answer.get_by_text("The end.")).to_be_visible()
        prices = answer.locator("p").nth(2)
        assert (await prices.inner_text()).startswith("It is $5 and $10, US$7, from $5-$9, $20 or 30$, and ")
        assert await answer.locator("code.math").all_text_contents() == [
            BOMB,
            r"$\frac{a$",
            r"$\href{https://e.example}{x}$",
        ]
        assert await page.locator("math [id], math [href], math a").count() == 0
        assert await answer.locator("math").first.evaluate("one => getComputedStyle(one).fontSize") == "17.92px"
        await answer.get_by_role("button", name="Copy as TeX").click()
        await page.wait_for_function(
            "async (text) => (await navigator.clipboard.readText()) === text", arg="$$\n\\int_0^1 x\\,dx\n$$"
        )
        await prices.evaluate("one => getSelection().selectAllChildren(one)")
        await page.keyboard.press("ControlOrMeta+C")
        copied = await page.evaluate("navigator.clipboard.readText()")
        assert copied == r"It is $5 and $10, US$7, from $5-$9, $20 or 30$, and $x_1^2$, \(\frac{a}{b}\)."
