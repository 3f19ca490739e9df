"""The page's modules as they travel: those that are needed together are joined into one file, which is one request.

In a joined file each module is a block, behind those that it imports, and what it exports are the properties of an
object: `const $dom_elements = {}; { function h() {} Object.assign($dom_elements, { h }); }`. Modules of other files
import that object, so that each module runs once. At its own address a joined module only hands out the same exports.
Names, and therefore stack traces, stay as they are written.

`import` and `export` are rewritten where they begin a line, in the forms that FROM and EXPORT know. Any other form, and
a name that the other module does not export, raises ValueError with the name of the module.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from posixpath import dirname, normpath, relpath

from tools.base.patterns import lazy_pattern

FIRST, TURNS = "first.js", "turns.js"
# Each joined file has what these import at once, but for what an earlier one has.
GROUPS = {
    FIRST: ("js/main.js",),  # the first screen
    # A conversation, and what describes a waiting call.
    TURNS: (
        *("js/dom/turn_texts.js", "js/chat/run_view.js", "js/documents/documents.js"),
        *("js/approvals/call_description.js", "js/approvals/origins.js", "js/approvals/write_preview.js"),
    ),
}
TEXTS = "js/dom/texts.js"
DECIDE = "js/approvals/decide.js"  # a page of its own, joined with all that it imports
ALONE = ("js/main.js", "js/dom/errors.js")  # the scripts of the index: the second tells that another file is missing
FROM = lazy_pattern(
    r'^(?:import (?:(\{[^}]*\}|\* as \w+|\w+) from )?|export (\*) from )"([^"]+)"(?: with \{ type: "json" \})?;$',
    re.MULTILINE,
)
EXPORT = lazy_pattern(r"^export (?=(?:(?:async )?function\*?|class|const) (\w+))", re.MULTILINE)
FORM = lazy_pattern(r'^(?:import|export)(?=[ "{*])[^\n]*', re.MULTILINE)
LATER = lazy_pattern(r"""\bimport\(\s*(["`])(\.{1,2}/[^"`]+)\1(\s*\))?""")


class Modules:
    """The modules of the page, by their paths below its folder."""

    def __init__(self, bodies: Mapping[str, bytes]) -> None:
        self._texts = {name: body.decode() for name, body in bodies.items()}
        self._exports = {name: _exports(name, text) for name, text in self._texts.items()}
        for name, text in self._texts.items():
            for _, is_all, source in FROM.findall(text):
                self._exports[name] += self._exports[_path(name, source)] if is_all else []
        self._tables: dict[str, str] = {}
        self._groups: dict[str, str] = {}  # the joined file of a module
        for group, entries in GROUPS.items():
            for name in self.reached(entries):
                if name not in ALONE:
                    self._groups.setdefault(name, group)

    def members(self, group: str) -> list[str]:
        """Return the modules of a joined file, each behind those that it imports."""
        return [name for name in self.reached(GROUPS[group]) if self._groups.get(name) == group]

    def reached(self, entries: Iterable[str]) -> list[str]:
        """Return these modules and all that they import at once, each behind those that it imports."""
        found: dict[str, None] = {}

        def visit(name: str) -> None:
            if name in self._exports and name not in found:
                for _, _, source in FROM.findall(self._texts[name]):
                    visit(_path(name, source))
                found[name] = None

        for name in entries:
            visit(name)
        return list(found)

    def source(self, names: Iterable[str]) -> str:
        return "\n".join(self._texts[name] for name in names)

    def served(self, workers: Iterable[str], tables: Mapping[str, bytes]) -> dict[str, bytes]:
        """Return the joined files, which have their tables in them, and what the other modules become.

        A worker has its imports in its own file, as the page of one call has.
        """
        self._tables = {name: body.decode() for name, body in tables.items()}
        files = {name: self._handed_out(name, name) for name in self._groups}
        files |= {name: self._rewritten(name, name, ()) for name in self._exports if name not in files}
        joined = {worker: members for worker in (*workers, DECIDE) if len(members := self.reached([worker])) > 1}
        files |= {worker: self._joined(worker, members) for worker, members in joined.items()}
        for group in GROUPS:
            members = self.members(group)
            files[group] = f"{self._joined(group, members)}export {{ {', '.join(map(_object, members))} }};\n"
        return {name: text.encode() for name, text in files.items()}

    def _joined(self, at: str, members: Collection[str]) -> str:
        heads = [self._import(name, at) + "\n" for name in self.reached(members) if name not in members]
        return "".join(heads + [self._block(name, at, members) for name in members])

    def _block(self, name: str, at: str, members: Collection[str]) -> str:
        there, text = _object(name), self._rewritten(name, at, members)
        return (
            f"const {there} = {{}};\n{{\n{text}\nObject.assign({there}, {{ {', '.join(self._exports[name])} }});\n}}\n"
        )

    def _handed_out(self, other: str, at: str) -> str:
        """Return what exports all of a joined module from another file."""
        group, names = _relative(self._groups[other], at), ", ".join(self._exports[other])
        return f'import {{ {_object(other)} as all }} from "{group}"; export const {{ {names} }} = all;'

    def _import(self, other: str, at: str) -> str:
        """Return what imports the object of a module into another file."""
        group = self._groups.get(other)
        named = f"{{ {_object(other)} }}" if group else f"* as {_object(other)}"
        return f'import {named} from "{_relative(group or other, at)}";'

    def _rewritten(self, name: str, at: str, members: Collection[str]) -> str:
        """Return a module's text for the file `at`, as a block among its members or as the one module of it."""

        def statement(found: re.Match[str]) -> str:
            clause, is_all, source = found.groups()
            other = _path(name, source)
            if other.endswith(".json"):
                return f"const {clause} = {self._tables[other]};" if members else found[0]
            if missing := {*_names(clause)} - {*self._exports[other]}:
                raise ValueError(f"{name} imports {', '.join(sorted(missing))}, which {other} does not export.")
            if members and is_all:
                raise ValueError(f"{name} exports all of {other}: only a module that is not joined with others can.")
            taken = f"const {_pattern(clause)} = {_object(other)};" if clause else ""
            if members:
                return taken
            if other not in self._groups:
                return found[0]
            return self._handed_out(other, at) if is_all else f"{self._import(other, at)} {taken}"

        def later(found: re.Match[str]) -> str:
            quote, source, end = found.groups()
            other = _path(name, source)
            if not end:
                return f"import({quote}{_relative(other, at)}{quote}"
            first = "" if TEXTS in members else f'import("{_relative(FIRST, at)}").then((all) => all.'
            texts = f"{first}{_object(TEXTS)}.ownTexts(){first and ')'}"
            group = self._groups.get(other)
            taken = f".then((all) => all.{_object(other)})" if group else ""
            return f"{texts}.then(() => import({quote}{_relative(group or other, at)}{quote})){taken}"

        text = self._texts[name]
        if members:
            text = EXPORT.sub("", text).replace("import.meta.url", f'new URL("{_relative(name, at)}", import.meta.url)')
        return LATER.sub(later, FROM.sub(statement, text))


def _exports(name: str, text: str) -> list[str]:
    """Return the names that a module exports itself."""
    known = {found.start() for pattern in (FROM, EXPORT) for found in pattern.finditer(text)}
    for found in FORM.finditer(text):
        if found.start() not in known:
            raise ValueError(f"{name}: {found[0]!r} is no form of import or export that modules of the page may have.")
    return EXPORT.findall(text)


def _names(clause: str | None) -> list[str]:
    """Return what `{ a, b as c }` takes: a and b. Other clauses take no name."""
    parts = clause.strip("{}").split(",") if clause and clause.startswith("{") else []
    return [part.split()[0] for part in parts if part.strip()]


def _pattern(clause: str) -> str:
    """Return what takes the same from an object: `{ a, b: c }`."""
    return clause.replace(" as ", ": ") if clause.startswith("{") else clause.removeprefix("* as ")


def _object(name: str) -> str:
    return "$" + name.removeprefix("js/").removesuffix(".js").replace("/", "_")


def _path(name: str, source: str) -> str:
    return normpath(f"{dirname(name)}/{source}")


def _relative(name: str, at: str) -> str:
    path = relpath(name, dirname(at) or ".")
    return path if path.startswith(".") else f"./{path}"
