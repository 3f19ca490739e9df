"""Joining the page's modules: which forms of import and export there are, and what they become."""

from __future__ import annotations

import pytest

from routes.page.joined import FIRST, TURNS, Modules

LOW = "export const a = 1;\nexport function b() {}\nexport async function* c() {}\nexport class D {}\n"
ENTRIES = {"js/dom/turn_texts.js": "", "js/chat/run_view.js": "", "js/documents/documents.js": ""}


def served(modules: dict[str, str], workers: tuple[str, ...] = (), **tables: bytes) -> dict[str, str]:
    bodies = {"js/dom/errors.js": "", "js/main.js": 'import "./low.js";', "js/low.js": LOW} | ENTRIES | modules
    known = Modules({name: text.encode() for name, text in bodies.items()})
    return {name: body.decode() for name, body in known.served(workers, tables).items()}


@pytest.mark.parametrize(
    ("statement", "in_a_group", "in_a_file"),
    [
        ('import { a, b as e } from "./low.js";', "const { a, b: e } = $low;", "const { a, b: e } = $low;"),
        (
            'import {\n  a,\n  D,\n} from "./low.js";',
            "const {\n  a,\n  D,\n} = $low;",
            "const {\n  a,\n  D,\n} = $low;",
        ),
        ('import * as low from "./low.js";', "const low = $low;", "const low = $low;"),
        ('import "./low.js";', "", 'import { $low } from "../first.js";'),
        (
            'const get = () => import("./low.js");',
            '$dom_texts.ownTexts()).then(() => import("./first.js")).then((all) => all.$low);',
            '$dom_texts.ownTexts()).then(() => import("../first.js")).then((all) => all.$low);',
        ),
        ('const get = () => import("./later.js");', 'import("./js/later.js")', 'import("./later.js")'),
        ("const at = import.meta.url;", 'new URL("./js/main_part.js", import.meta.url)', "import.meta.url"),
    ],
)
def test_a_form_of_import_in_a_joined_file_and_in_a_file_of_its_own(
    statement: str, in_a_group: str, in_a_file: str
) -> None:
    main = {"js/main.js": 'import "./low.js";\nimport "./main_part.js";\n', "js/later.js": ""}
    joined = served(main | {"js/main_part.js": statement})[FIRST]
    assert in_a_group in joined.partition("$main_part")[2] and "\nimport" not in joined
    alone = served({"js/later.js": "", "js/other.js": statement})["js/other.js"]
    assert in_a_file in alone
    if " from " in statement:
        assert alone.startswith('import { $low } from "../first.js";')


def test_a_joined_module_is_a_block_that_hands_out_what_it_exports() -> None:
    files = served({"js/chat/run_view.js": 'import { a } from "../low.js";\nexport const view = a;'})
    assert files[FIRST] == (
        "const $low = {};\n{\nconst a = 1;\nfunction b() {}\nasync function* c() {}\nclass D {}\n\n"
        "Object.assign($low, { a, b, c, D });\n}\nexport { $low };\n"
    )
    assert files["js/low.js"] == 'import { $low as all } from "../first.js"; export const { a, b, c, D } = all;'
    assert files[TURNS].startswith('import { $low } from "./first.js";\n')
    assert "const { a } = $low;\nconst view = a;" in files[TURNS]


def test_a_table_is_in_the_file_and_a_worker_has_its_imports() -> None:
    table = 'import english from "../texts/en.json" with { type: "json" };'
    worker = {"js/worker.js": 'import { a } from "./low.js";\npostMessage(a);'}
    files = served(
        {"js/low.js": f"{table}\nexport const a = english;"} | worker, ("js/worker.js",), **{"texts/en.json": b"{}"}
    )
    assert "const english = {};" in files[FIRST]
    assert files["js/worker.js"].startswith("const $low = {};") and "import" not in files["js/worker.js"]
    assert "export" not in files["js/worker.js"]


@pytest.mark.parametrize(
    "text",
    [
        "export let a = 1;",
        "export default function f() {}",
        'import a from "./low.js", b;',
        'export { a } from "./low.js";',
        "const a = 1;\nexport { a };",
        "export const { a } = b;",
        'import { nothing } from "./low.js";',
        'import { a } from "./low.js"',
    ],
)
def test_another_form_is_refused_with_the_name_of_the_module(text: str) -> None:
    with pytest.raises(ValueError, match=r"js/part\.js"):
        served({"js/part.js": text})
