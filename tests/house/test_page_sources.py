"""The house rules of the page: JavaScript and CSS that browsers run as they are written."""

from __future__ import annotations

import re
import subprocess
from functools import cache
from itertools import product
from pathlib import Path

import pytest

from tests import ROOT
from tests.support.page.browser import INSTALLED, needed
from tests.support.page.modules import ENTRIES, PAGE, imported, reached
from tests.tasks.page_shots import FOLDER as SHOTS
from tests.tasks.page_shots import MOST_BYTES

WORKERS = (
    "feed/feed_worker.js",
    "notifications/push_worker.js",
    "text/highlight_worker.js",
)  # run by the browser beside the page
BESIDE = ("sessions/shared_page.js", "approvals/decide.js")  # of other pages
MAX_FILE_LINES, MAX_LINE, MAX_FILES_IN_FOLDER = 700, 120, 25
# From the lowest to the highest: a room imports itself and those before it. main.js stands above all of them.
ROOMS = (
    "dom",
    "text",
    "feed",
    "markdown",
    "terminal",
    "apps",
    "cards",
    "approvals",
    "notifications",
    "workspace",
    "panels",
    "documents",
    "chat",
    "sessions",
    "commands",
)
# What could make a script of words, or a style the policy forbids; and what is left over from looking for a mistake.
FORBIDDEN = re.compile(
    r"""\.(inner|outer)HTML\b|insertAdjacentHTML|document\.write|\beval\(|new Function\b|DOMParser|\.srcdoc\b"""
    r"""|createContextualFragment|setHTMLUnsafe|setAttribute\(\s*["'](style|on\w+)["']|console\.log|\bdebugger\b"""
)
WORDS = ("text", "faint", "accent", "good", "bad", "wait")
BACKS = ("back", "rail", "surface", "raised", "code", "accent-soft", "good-soft", "bad-soft", "wait-soft")
PAIRS = (*product(WORDS, BACKS), ("on-accent", "accent"), ("on-terminal", "terminal"))
LEAST_CONTRAST = 4.5
# Styles have these from tokens.css. What follows the size of a font or of the window is none of them.
RAW_COLOUR = re.compile(r"#[0-9a-fA-F]{3,8}\b|\b(?:rgb|hsl|hwb|lab|lch|oklab|oklch)a?\(|\blight-dark\(")
MEASURED = re.compile(r"(?<![\w-])(padding|margin|gap|font|border-radius|transition|animation)[\w-]*:\s*([^;{}]+)[;}]")
LENGTH = re.compile(r"(?<![\w.])\d*\.?\d+(?:px|rem|ms|s)\b")
HAIRLINES = {"1px", "2px", "0.01ms"}  # the last one ends all motion


@cache
def written() -> dict[str, str]:
    """Our own files of the page, by their path below it: what is vendored is as its authors wrote it."""
    paths = [path for path in PAGE.rglob("*") if path.suffix in (".js", ".css") and "vendor" not in path.parts]
    return {path.relative_to(PAGE).as_posix(): path.read_text() for path in sorted(paths)}


def scripts() -> dict[str, str]:
    return {name: text for name, text in written().items() if name.endswith(".js")}


def test_files_are_short_and_say_what_they_are_for() -> None:
    assert len(scripts()) > 20, "the page's files are not seen"
    long = [f"{name}: {n} lines" for name, text in written().items() if (n := len(text.splitlines())) > MAX_FILE_LINES]
    silent = [name for name, text in written().items() if not text.startswith(("/**", "/*"))]
    wide = [
        f"{name}:{number}"
        for name, text in scripts().items()
        for number, line in enumerate(text.splitlines(), 1)
        if len(line) > MAX_LINE and not re.search(r'"[^"]{80,}"|`[^`]{80,}`|/.{80,}/', line)
    ]
    assert not long, f"split these: {long}"
    assert not silent, f"begin these with a comment: {silent}"
    assert not wide, f"break these lines: {wide}"


def test_no_words_become_markup_or_script() -> None:
    found = [
        f"{name}:{number}: {line.strip()}"
        for name, text in scripts().items()
        for number, line in enumerate(text.splitlines(), 1)
        if FORBIDDEN.search(line) and not line.lstrip().startswith(("*", "/*", "//"))
    ]
    assert not found, "\n".join(found)


def test_no_text_of_a_script_goes_over_several_lines() -> None:
    """Indents are not served (routes/page): they may be no part of a text."""
    whole = re.compile(r'"(?:[^"\\]|\\.)*"|`(?:[^`\\]|\\.)*`|(?<![\w)\]])/(?:[^/\\\[]|\\.|\[(?:[^\]\\]|\\.)*\])+/|//.*')
    found = [
        f"{name}:{number}: {line.strip()}"
        for name, text in scripts().items()
        for number, line in enumerate(text.splitlines(), 1)
        if "`" in whole.sub("", line) and not line.lstrip().startswith(("*", "/*"))
    ]
    assert not found, found


def test_folders_are_small() -> None:
    sizes = {path: len(list(path.glob("*.js"))) for path in (PAGE / "js").rglob("*") if path.is_dir()}
    assert {name_of(path).partition("/")[0] for path in sizes} == set(ROOMS), "name each room in ROOMS"
    crowded = {path.name: size for path, size in sizes.items() if size > MAX_FILES_IN_FOLDER}
    assert not crowded, f"make rooms of these: {crowded}"


def name_of(path: Path) -> str:
    return path.relative_to(PAGE / "js").as_posix()


def room_of(path: Path) -> int:
    name = name_of(path).partition("/")[0]
    return ROOMS.index(name) if name in ROOMS else len(ROOMS)


def test_rooms_import_only_themselves_and_lower_rooms() -> None:
    upwards = [
        f"{name_of(path)} imports {name_of(other)}"
        for path in (PAGE / "js").rglob("*.js")
        for other in imported(path)
        if room_of(other) > room_of(path)
    ]
    assert not upwards, upwards


def cycles(imports: dict[str, list[str]]) -> list[list[str]]:
    """The cycles that a walk along the imports meets, each from one module to the same module."""
    found: list[list[str]] = []
    done: set[str] = set()

    def walk(name: str, way: list[str]) -> None:
        if name in way:
            found.append([*way[way.index(name) :], name])
        elif name not in done:
            for other in imports[name]:
                walk(other, [*way, name])
            done.add(name)

    for name in imports:
        walk(name, [])
    return found


def test_modules_import_each_other_in_no_circle() -> None:
    """Imports on demand count as well."""
    paths = (PAGE / "js").rglob("*.js")
    assert cycles({name_of(path): [name_of(other) for other in imported(path)] for path in paths}) == []


def test_a_circle_of_imports_is_seen() -> None:
    assert cycles({"a": ["b"], "b": ["c"], "c": ["b"], "d": ["a"]}) == [["b", "c", "b"]]
    assert cycles({"a": ["b", "c"], "b": ["c"], "c": []}) == []


def test_every_module_is_used() -> None:
    there = {path for path in (PAGE / "js").rglob("*.js") if "vendor" not in path.parts}
    unused = there - reached([PAGE / "js" / name for name in (*ENTRIES, *WORKERS, *BESIDE)])
    assert not unused, f"nobody imports {sorted(path.name for path in unused)}"


def test_every_style_and_module_that_is_always_needed_is_named_in_the_page() -> None:
    index = (PAGE / "index.html").read_text()
    styles = {f"/page/css/{path.name}" for path in (PAGE / "css").glob("*.css")}
    assert set(re.findall(r'rel="stylesheet" href="([^"]+)"', index)) == styles
    modules = {"/page/first.js", *(f"/page/js/{name}" for name in ENTRIES)}
    assert set(re.findall(r'(?:rel="modulepreload" href|type="module" src)="([^"]+)"', index)) == modules


def test_styles_take_colours_space_type_corners_and_motion_from_the_tokens() -> None:
    styles = {name: re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL) for name, text in written().items()}
    own = {name: text for name, text in styles.items() if name.endswith(".css") and name != "css/tokens.css"}
    colours = [f"{name}: {found[0]}" for name, text in own.items() for found in RAW_COLOUR.finditer(text)]
    measures = [
        f"{name}: {found[0]}"
        for name, text in own.items()
        for found in MEASURED.finditer(text)
        if not set(LENGTH.findall(found[2])) <= HAIRLINES
    ]
    assert not colours, colours
    assert not measures, "\n".join(measures)


def luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("place", [0, 1], ids=["light", "dark"])
def test_every_pair_of_colours_can_be_read(place: int) -> None:
    styles = written()["css/tokens.css"]
    said = re.findall(r"--([\w-]+): (?:light-dark\()?(#\w{6})(?:, (#\w{6}))?", styles)
    colours = {name: (light, dark or light)[place] for name, light, dark in said}
    syntax = [(name, "code") for name in colours if name.startswith("c-")]
    assert len(syntax) == 6
    poor = [
        f"{words} on {back}: {found:.2f}"
        for words, back in (*PAIRS, *syntax)
        if (found := contrast(colours[words], colours[back])) < LEAST_CONTRAST
    ]
    assert not poor, poor


def test_the_scripts_are_formatted_and_say_nothing_twice() -> None:
    found = sorted(INSTALLED.glob("@biomejs/cli-*/biome"))
    biome = needed(found[0] if found else None, "biome")
    config = ROOT / "fixtures/page"
    command = [str(biome), "check", f"--config-path={config}", "--error-on-warnings", str(PAGE)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr


def test_the_documents_show_the_page_in_small_pictures() -> None:
    """`python -m tests.tasks.page_shots` makes them anew."""
    pictures = {f"../fixtures/page/shots/{path.name}": path.stat().st_size for path in SHOTS.iterdir()}
    named = re.findall(r"\.\./fixtures/page/shots/[\w.-]+", (ROOT / "docs/page.md").read_text())
    assert set(named) == pictures.keys() and len(pictures) == 5
    assert max(pictures.values()) < MOST_BYTES, pictures


@pytest.mark.parametrize("unsafe", ["x.innerHTML = y", 'x.setAttribute("style", y)', "eval(x)", "console.log(1)"])
def test_what_is_forbidden_is_seen(unsafe: str) -> None:
    assert FORBIDDEN.search(unsafe)
