"""Renders a chat template, which a stranger wrote, in a process of its own.

jinja2's sandbox decides what the template may reach, the kernel what it may take: CPU time, memory and files. The
process reads a line of JSON for each question and writes one for each answer: at first the template's source, then the
variables of each rendering. Nothing of the server is imported here.
"""

from __future__ import annotations

import json
import resource
import signal
import sys
from typing import Any, NoReturn

from jinja2 import TemplateError, nodes
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace, pass_context

LIMIT_S = 0.08  # of CPU time for all renderings of a template
READING_S = 0.5  # of CPU time to compile it: the longest known take 0.1
LONGEST = 1 << 17  # characters of a rendered text
_MEMORY = 512 << 20
_DATE = "2026-01-01"  # the same prompt at any time
# Whatever a template's author can get wrong in it.
_FAILURES = (
    TemplateError, TypeError, ValueError, LookupError, ArithmeticError, AttributeError, RecursionError, MemoryError,
    SyntaxError,
)  # fmt: skip
# The attributes that templates of models need; whatever else there is stays out of reach.
_ATTRIBUTES = frozenset((
    "append", "capitalize", "count", "endswith", "find", "format", "get", "index", "isdigit", "items", "join", "keys",
    "lower", "lstrip", "pop", "replace", "rsplit", "rstrip", "split", "splitlines", "startswith", "strip", "title",
    "update", "upper", "values", "cycle", "changed", "depth", "depth0", "first", "index0", "last", "length",
    "nextitem", "previtem", "revindex", "revindex0",
))  # fmt: skip


class _Generation(Extension):
    """Reads `generation` blocks, which mark what a model writes, as their content."""

    tags = {"generation"}  # noqa: RUF012 - as the base class has it

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        return nodes.Scope(parser.parse_statements(("name:endgeneration",), drop_needle=True), lineno=line)


class _Sandbox(ImmutableSandboxedEnvironment):
    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        known = attr in _ATTRIBUTES or isinstance(obj, Namespace)
        return known and super().is_safe_attribute(obj, attr, value)

    def unsafe_undefined(self, obj: Any, attribute: str) -> NoReturn:
        raise SecurityError(f"the attribute {attribute!r} of {type(obj).__name__}")


def _raise(message: object = "") -> None:
    raise TemplateError(f"it refuses these messages: {message}")


def _to_json(value: Any, ensure_ascii: bool = False, indent: int | None = None, **options: Any) -> str:
    """JSON as the templates of transformers expect it: without escapes for HTML."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, **options)


@pass_context
def _as_it_is(_: object, value: object) -> object:
    """Keep jinja2 from computing constants while it compiles, as it cannot know the value: rendering has the limit."""
    return value


class Renderer:
    """One template."""

    def __init__(self, source: str) -> None:
        environment = _Sandbox(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=["jinja2.ext.loopcontrols", _Generation],
            cache_size=0,
            optimized=False,
            finalize=_as_it_is,
        )
        environment.filters["tojson"] = _to_json
        environment.globals |= {"raise_exception": _raise, "strftime_now": lambda form: _DATE}
        self._template = environment.from_string(source, {"bos_token": "", "eos_token": ""})

    def render(self, **variables: Any) -> str:
        return self._template.render(variables)


def refusal(error: Exception) -> str:
    """Return what is wrong with a template, as the rest of a sentence that begins with it."""
    match error:
        case SecurityError():
            return f"asks for {error}, which is not allowed"[:300]
        case RecursionError():
            return "is nested too deeply"
        case MemoryError():
            return "needs too much memory"
    return f"fails: {error}"[:300]


def answer(renderer: Renderer | None, question: Any) -> tuple[Renderer | None, dict[str, str]]:
    """Return the renderer of the template, once it is read, and the answer to write."""
    try:
        if renderer is None:
            return Renderer(question), {"text": ""}
        text = renderer.render(**question)
    except _FAILURES as error:
        reason = "".join(one if one.isprintable() else ascii(one)[1:-1] for one in refusal(error))  # for a terminal
        return renderer, {"refused": reason}
    return renderer, {"text": text} if len(text) <= LONGEST else {"refused": f"makes more than {LONGEST:,} characters"}


def main() -> None:
    """Answer the lines of stdin. The kernel ends the process when its template has used its time."""
    for limit, value in ((resource.RLIMIT_AS, _MEMORY), (resource.RLIMIT_CORE, 0), (resource.RLIMIT_FSIZE, 0)):
        resource.setrlimit(limit, (value, value))
    signal.setitimer(signal.ITIMER_PROF, READING_S)
    renderer: Renderer | None = None
    for line in sys.stdin:
        is_read = renderer is not None
        renderer, answered = answer(renderer, json.loads(line))
        sys.stdout.write(json.dumps(answered) + "\n")
        sys.stdout.flush()
        if not is_read:
            signal.setitimer(signal.ITIMER_PROF, LIMIT_S)


if __name__ == "__main__":
    main()
