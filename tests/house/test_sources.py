"""The house rules, as tests. An exception is a row with its reason in one of the tables below, never a silent drift."""

from __future__ import annotations

import ast
import importlib
import re
from collections import Counter
from collections.abc import Callable, Mapping
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from tests import ROOT
from tests.support.sources import FLOORS, FOLDERS, Function, Source, functions, imports, nothing, sources

# A number that is near becomes the architect: one concept a file, near 200 lines; these only stop the outliers.
MAX_FILE_LINES, MAX_FUNCTION_LINES, MAX_FOLDER_MODULES = 700, 80, 25
# Of these the end of a test run tells: look if there are two concepts.
LONG_FILE, LONG_FUNCTION = 400, 50
MAX_POSITIONAL = 5
SMALL_MODULE = 40

# file -> why it may be longer
LONG_FILES: dict[str, str] = {}
# file:function -> why it may be longer
LONG_FUNCTIONS: dict[str, str] = {}
# file:function -> what its broad except answers. The house has three.
BROAD_EXCEPTS = {
    "app/log/event_writer.py:wake": "a watcher that breaks must not end the journal, which all runs need",
    "tools/toolbox.py:run": "a tool that breaks must not end the run",
    "app/runs/run_task.py:drive": "the stream's last line of defence: every run has a terminal event",
}
# package -> why its `__init__` imports its own modules; those that it imports must not take a name from it
FACADES = {
    "parsing": "the public names of a library in its own right",
    "parsing.dialects": "the tables, made of the rows that its modules hold",
}
# files with tables, whose rows are short and read as columns
COLUMNS = ("parsing/dialects/", "routes/lanes/catalogue.py", "routes/openapi/operations/")
# functions that pass on what they are given, or take any number of the same
ANY_NUMBER = {"to_thread", "partial", "execute", "rows", "write", "insert_once", "suppress", "tagged"}
# Rooms with a module for each row of a table: a tool, the handlers of a resource, a lane, a wire format, a channel.
OF_ROWS = {"tools.builtin", "routes.http", "routes.lanes", "app.models.wire", "app.notifications"}
# small module with a single importer -> why it is a module; a whole folder by its name
SMALL_MODULES = {
    "app.config.search_backend": "settings are read without the tools, which take their time to load",
    "app.mcp.files": "one of the hooks that `app.mcp.servers` puts together, with reasons of its own",
    "app.metrics": "a source of figures: it is composed where runs are, above this room",
    "app.replicas.postgres": "a database's own side of a protocol",
    "app.runs.discipline.ending_weights": "written by a program, with the weights",
    "routes.protocol.http_metrics": "a source of figures: it is composed where the server is",
}
# what is called -> who closes what `async for` opens there
CLOSED_ELSEWHERE = {
    "stream": "Starlette closes a request's body with the request",
    "aiter_raw": "`async with client.stream(...)` around it closes the response",
    "aiter_bytes": "`async with client.stream(...)` around it closes the response",
    "EventSource": "`async with client.stream(...)` around it closes the response",
}
# Hosts that files may name: this machine, names reserved for examples, and documentation that everybody can read.
PUBLIC_HOSTS = re.compile(
    r"([\w-]+\.)?localhost|127\.0\.0\.1|0\.0\.0\.0|::1?|[\w-]+(\.(example|test|invalid|local))?|([\w-]+\.)*example\.(com|org|net)"
    r"|([\w-]+\.)*(python\.org|pytest\.org|keepachangelog\.com|semver\.org|github\.com|apache\.org|w3\.org|whatwg\.org|json-schema\.org|spdx\.org)"
    r"|kubernetes\.io|prometheus\.io|specifications\.freedesktop\.org|modelcontextprotocol\.io|api\.openai\.com|api-docs\.deepseek\.com|platform\.kimi\.ai|docs\.z\.ai|ai\.google\.dev"
    r"|openrouter\.ai|docs\.litellm\.ai|download\.pytorch\.org|docs\.vllm\.ai|docs\.mistral\.ai|xgrammar\.mlc\.ai|huggingface\.co|api\.mistral\.ai|platform\.claude\.com|api\.anthropic\.com|api\.telegram\.org|slack\.com|discord\.com|docs\.ag-ui\.com|agentclientprotocol\.com|ai-sdk\.dev|w3c\.github\.io|[\d.]+"
    r"|docs\.searxng\.org|docs\.ntfy\.sh|www\.standardwebhooks\.com|www\.rfc-editor\.org|([\w-]+\.)*(brave\.com|tavily\.com|serper\.dev|exa\.ai)|www\.googleapis\.com|(schemas\.)?openid\.net|([\w-]+\.)?(commonmark|creativecommons)\.org"
)
# As they were published, with the names they made up.
SPECIFICATIONS = ("fixtures/page/commonmark.json", "fixtures/mcp/registry/", "routes/page/vendor/")


@cache
def texts() -> dict[str, str]:
    """Every text file that belongs to the project: its folders, and the files beside them."""
    paths = [path for path in ROOT.iterdir() if path.is_file() and path.name not in (".git", "dragoman.toml")]
    for folder in (*FOLDERS, "fixtures", "docs", ".ci"):
        paths += [path for path in (ROOT / folder).rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    found = {}
    for path in paths:
        written = path.read_bytes()
        if b"\0" not in written:
            found[path.relative_to(ROOT).as_posix()] = written.decode("utf-8", "replace")
    return found


Record = Callable[[str, object], None]


def tell(record_property: Record, what: str, lines: Mapping[str, int], most: int) -> None:
    """Let the end of the test run say what of the product is longer: no test fails for it."""
    found = {at: count for at, count in lines.items() if count > most and at.startswith(FLOORS)}
    if found:
        record_property(what, ", ".join(f"{at} ({found[at]})" for at in sorted(found)))


def test_the_sources_are_found() -> None:
    assert {source.path.partition("/")[0] for source in sources()} == set(FOLDERS)


def test_files_are_short(record_property: Record) -> None:
    long = {source.path: len(source.text.splitlines()) for source in sources()}
    tell(record_property, f"files of more than {LONG_FILE} lines", long, LONG_FILE)
    long = {path: length for path, length in long.items() if length > MAX_FILE_LINES}
    nothing([f"{path}: {n} lines" for path, n in long.items() if path not in LONG_FILES], because="Split these files:")
    nothing(sorted(LONG_FILES.keys() - long.keys()), because="These exceptions are no longer needed:")


def test_functions_are_short(record_property: Record) -> None:
    long = {
        f"{source.path}:{function.name}": (function.end_lineno or 0) - function.lineno + 1
        for source in sources()
        for function in functions(source.tree)
    }
    tell(record_property, f"functions of more than {LONG_FUNCTION} lines", long, LONG_FUNCTION)
    long = {at: length for at, length in long.items() if length > MAX_FUNCTION_LINES}
    nothing(
        [f"{at}: {n} lines" for at, n in long.items() if at not in LONG_FUNCTIONS], because="Split these functions:"
    )
    nothing(sorted(LONG_FUNCTIONS.keys() - long.keys()), because="These exceptions are no longer needed:")


def test_folders_are_small() -> None:
    modules = Counter(str(Path(one.path).parent) for one in sources())
    large = [f"{folder}: {count} modules" for folder, count in modules.items() if count > MAX_FOLDER_MODULES]
    nothing(large, because="Make rooms in these folders:")


def test_every_module_of_tests_has_a_name_of_its_own() -> None:
    # Groups of tests/conftest.py and `pytest -k` know a module by its name alone.
    names = Counter(Path(one.path).stem for one in sources() if "/test_" in one.path)
    nothing([name for name, count in names.items() if count > 1], because="Tell these modules of tests apart:")


def test_every_module_says_what_it_is_for() -> None:
    # A test's module says it in its path: tests/<floor>/<room>/test_<subject>.
    modules = [one for one in sources() if one.tree.body and not one.path.startswith("tests/")]
    silent = [one.path for one in modules if not ast.get_docstring(one.tree)]
    nothing(silent, because="Begin these modules with a docstring:")


QUESTIONS = {"What", "Whether", "Who", "How", "Where", "Why", "When"}


def test_a_docstring_says_what_is_done_or_returned() -> None:
    # An order ("Return the events after `cursor`") or a noun ("Open streams per principal"), never half a question.
    asking = [
        f"{source.path}:{getattr(node, 'name', '')}"
        for source in sources()
        if source.path.partition("/")[0] in FLOORS
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Module | ast.ClassDef | Function)
        if (ast.get_docstring(node) or " ").split(" ")[0] in QUESTIONS
    ]
    nothing(asking, because="Begin these docstrings with a verb or a noun:")


def packages(module: str) -> set[str]:
    """Those that a module is in: Python runs their `__init__` first."""
    parts = module.split(".")
    return {".".join(parts[:length]) for length in range(1, len(parts))}


def imported(name: str, named: set[str], modules: set[str]) -> set[str]:
    """What the module `name` loads by importing `named`: these, and first the packages that they are in."""
    around = set[str]().union(*map(packages, named)) - (packages(name) & FACADES.keys())
    return ((named | around) & modules) - {name}


def test_no_module_imports_itself_in_the_end() -> None:
    named = {one.module: one for one in sources()}
    graph = {name: imported(name, imports(source, set(named)), set(named)) for name, source in named.items()}
    assert sum(map(len, graph.values())) > 20, "the imports are not seen"
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(f"These modules import each other: {' <- '.join(error.args[1])}")


def test_no_module_imports_from_a_test() -> None:
    # What two of them need lies in tests/support.
    tests = {one.module for one in sources() if "/test_" in one.path}
    nothing(
        [f"{one.path}: {name}" for one in sources() for name in imports(one, tests)], because="Move what is shared:"
    )


def test_a_package_counts_as_imported_with_its_modules() -> None:
    """Otherwise an `__init__` that imports half of a floor hides what each of its modules loads."""
    modules = {"a", "a.b", "a.b.c", "a.b.d", "x"}
    assert imported("x", {"a.b.c"}, modules) == {"a", "a.b", "a.b.c"}
    assert imported("a.b.d", {"a.b.c"}, modules) == {"a", "a.b", "a.b.c"}
    assert imported("a.b", {"a.b.c"}, modules) == {"a", "a.b.c"}


def positional(call: ast.Call) -> list[ast.expr]:
    """The arguments of a call that are not named; those of a tuple that is unpacked there are not counted."""
    return [one for one in call.args if not isinstance(one, ast.Starred)]


def parameters(function: Function) -> list[str]:
    """The names of those that need not be named in a call."""
    return [one.arg for one in (*function.args.posonlyargs, *function.args.args)]


def is_splat(argument: ast.expr) -> bool:
    return isinstance(argument, ast.Starred) and isinstance(argument.value, ast.Tuple | ast.List)


def test_calls_name_their_arguments() -> None:
    """Two strings can be swapped, and no type says so.

    Rows of the store are read by column, so that their fields cannot be keyword-only: the calls name them.
    """
    product = [one for one in sources() if one.path.startswith(FLOORS)]
    defined = [
        f"{source.path}:{function.lineno}: {function.name}"
        for source in product
        for function in functions(source.tree)
        if len([one for one in parameters(function) if one not in ("self", "cls")]) > MAX_POSITIONAL
    ]
    nothing(defined, because=f"Let these take the arguments behind the first {MAX_POSITIONAL} by name only:")
    calls = [(one, node) for one in product for node in ast.walk(one.tree) if isinstance(node, ast.Call)]
    many = [
        f"{source.path}:{call.lineno}: {called(call)}"
        for source, call in calls
        if len(positional(call)) > MAX_POSITIONAL
        if not source.path.startswith(COLUMNS) and called(call) not in ANY_NUMBER
    ]
    nothing(many, because=f"Name all arguments behind the first {MAX_POSITIONAL}, or those that can be mistaken:")
    splats = [f"{source.path}:{call.lineno}" for source, call in calls if any(map(is_splat, call.args))]
    nothing(splats, because="Name the arguments instead of unpacking a tuple:")


def test_a_small_module_has_a_reason() -> None:
    """Another file to look up, where its one importer could hold it."""
    product = [one for one in sources() if one.path.startswith(FLOORS)]
    named = {one.path.removesuffix(".py").removesuffix("/__init__").replace("/", "."): one for one in product}
    importers = Counter(name for one in product for name in imports(one, set(named)))
    small = {
        name
        for name, one in named.items()
        if one.text.count("\n") < SMALL_MODULE and importers[name] == 1 and not one.path.endswith("__init__.py")
        if not OF_ROWS & packages(name)
    }
    without = sorted(name for name in small if not SMALL_MODULES.keys() & {name, *packages(name)})
    nothing(without, because="Move these modules to where they are used:")
    reasons = [name for name in SMALL_MODULES if not any(name in {one, *packages(one)} for one in small)]
    nothing(reasons, because="These exceptions are no longer needed:")


BROAD = ("Exception", "BaseException")


def catches_all(node: ast.AST) -> bool:
    """Whether every exception ends here. A handler that cleans up and raises it again lets it pass."""
    match node:
        case ast.ExceptHandler(body=[*_, ast.Raise(exc=None)]):
            return False
        case ast.ExceptHandler(type=None):
            return True
        case ast.ExceptHandler(type=ast.Tuple(elts=caught)) | ast.Call(func=ast.Name("suppress"), args=caught):
            return any(isinstance(one, ast.Name) and one.id in BROAD for one in caught)
        case ast.ExceptHandler(type=ast.Name(id=name)):
            return name in BROAD
    return False


def where(source: Source, node: ast.stmt | ast.expr | ast.ExceptHandler) -> str:
    """The innermost function around a node, as `file:function`; `file:` outside of all."""
    around = [one for one in functions(source.tree) if one.lineno <= node.lineno <= (one.end_lineno or 0)]
    return f"{source.path}:{max(around, key=lambda one: one.lineno).name if around else ''}"


def test_only_two_places_catch_everything() -> None:
    found = {
        where(source, node)
        for source in sources()
        for node in ast.walk(source.tree)
        if isinstance(node, ast.ExceptHandler | ast.Call) and catches_all(node)
    }
    nothing(sorted(found - BROAD_EXCEPTS.keys()), because="Catch what you can name:")
    nothing(sorted(BROAD_EXCEPTS.keys() - found), because="These exceptions are no longer needed:")


def called(node: ast.AST) -> str:
    """The last name of what is called: `sleep` for `asyncio.sleep(1)`; empty for anything but a call of a name."""
    match node:
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)):
            return name
    return ""


def test_no_test_sleeps() -> None:
    sleeping = []
    for source in sources():
        for node in ast.walk(source.tree) if source.path.startswith("tests/") else ():
            match node:
                case ast.Call(args=[ast.Constant(value=0)]):
                    continue  # gives way to others, waits for nothing
                case ast.Call() if called(node) == "sleep":
                    sleeping.append(f"{source.path}:{node.lineno}")
    nothing(sleeping, because="Wait for what must happen, with a bound, instead of sleeping:")


def test_whoever_opens_a_stream_closes_it() -> None:
    unclosed = [
        f"{source.path}:{node.iter.lineno}: {name}"
        for source in sources()
        for node in ast.walk(source.tree)
        if isinstance(node, ast.AsyncFor) or (isinstance(node, ast.comprehension) and node.is_async)
        if (name := called(node.iter)) and name not in CLOSED_ELSEWHERE
    ]
    nothing(unclosed, because="Write `async with aclosing(...) as pieces` around these:")


def test_every_dialect_has_a_fixture() -> None:
    dialects = importlib.import_module("parsing.dialects").DIALECTS
    there = "\n".join(f"{path}\n{text}" for path, text in texts().items() if path.startswith("fixtures/dialects/"))
    unseen = [row.name for row in dialects if not re.search(rf"(?<![\w-]){re.escape(row.name)}(?![\w-])", there)]
    nothing(unseen, because="fixtures/dialects has nothing of these:")


def test_files_name_public_hosts_only() -> None:
    private = [
        f"{path}: {host}"
        for path, text in texts().items()
        if "/vendor/" not in path  # released files, which are never changed
        for host in re.findall(r"\bhttps?://(?:[\w.]+@)?([\w.-]+)", text)
        if not path.startswith(SPECIFICATIONS) and not PUBLIC_HOSTS.fullmatch(host.rstrip("."))
    ]
    nothing(private, because="These hosts are not public documentation (or belong into PUBLIC_HOSTS):")


def test_the_project_speaks_only_of_itself() -> None:
    # A checkout right below the top (`/app`) has a name that says nothing of one place.
    here = rf"{re.escape(str(ROOT))}\b|" if len(ROOT.parts) > 2 else ""
    elsewhere = re.compile(rf"{here}\b(?i:issue|ticket) #?\d+\b")
    told = [
        f"{path}: {found[0]}"
        for path, text in texts().items()
        if not path.startswith(SPECIFICATIONS)
        for found in elsewhere.finditer(text)
    ]
    nothing(told, because="These name the place or the plan that the code was written in:")


STARTS = re.compile(r"\b(create_subprocess_\w+|subprocess_exec|Popen|posix_spawnp?)\(")
# file -> why what it starts may inherit which signals are ignored
SIGNALS_INHERITED = {
    "tools/jobs/launch.py": "a supervisor, which sets those of its command",
    "tools/jobs/supervisor.py": "the command, with `setsigdef`",
    "tools/process/orphan_reaper.py": "the orphan reaper, which is only killed",
}


def test_programs_start_with_default_signals() -> None:
    product = [one for one in sources() if one.path.startswith(FLOORS)]
    starting = {one.path for one in product if STARTS.search(one.text) and "    reset_signals()\n" not in one.text}
    nothing(sorted(starting - SIGNALS_INHERITED.keys()), because="Call reset_signals() before the start:")
    nothing(sorted(SIGNALS_INHERITED.keys() - starting), because="These exceptions are no longer needed:")
