"""Renders a chat template that a stranger wrote, within bounds: its syntax tree is walked, never compiled or run.

jinja2 reads the template. What its nodes may do is a row in `_EVALUATORS`, `_STATEMENTS` or `values`, and anything else
is refused by name. Time is measured on this thread, at every token that is read and every node that is walked, and
each new value is bounded, so no single step can take long or much memory.
"""

from __future__ import annotations

import operator
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from jinja2 import Environment, TemplateError, Undefined, nodes
from jinja2.ext import Extension
from jinja2.lexer import Token, TokenStream
from jinja2.parser import Parser

from app.models.templates.values import (
    FILTERS,
    GLOBALS,
    LONGEST,
    METHODS,
    TESTS,
    Function,
    Namespace,
    TemplateRefused,
    bounded,
)

LONGEST_TEMPLATE = 1 << 17  # characters; the longest known have 100,000
LIMIT_S = 0.07  # of this thread's time, for reading and rendering together
_MOST_STEPS = 100_000
_FAILURES = (
    TemplateError, TypeError, ValueError, LookupError, ArithmeticError, AttributeError, RecursionError, MemoryError,
)  # fmt: skip
_COMPARE: Mapping[str, Callable[[Any, Any], Any]] = {
    "eq": operator.eq,
    "ne": operator.ne,
    "gt": operator.gt,
    "gteq": operator.ge,
    "lt": operator.lt,
    "lteq": operator.le,
    "in": lambda value, values: value in values,
    "notin": lambda value, values: value not in values,
}


class _Deadline:
    """The time and the steps that a template may take: between `start` and `stop` both count."""

    def __init__(self, limit_s: float) -> None:
        self._left = limit_s
        self._ends = 0.0
        self._steps = 0

    def start(self) -> None:
        self._ends = time.thread_time() + self._left

    def stop(self) -> None:
        self._left = self._ends - time.thread_time()

    def step(self) -> None:
        self._steps += 1
        if self._steps > _MOST_STEPS or (self._steps % 16 == 0 and time.thread_time() > self._ends):
            raise TemplateRefused("takes too long")


class _Bounds(Extension):
    """Reads `generation` blocks as their content, and counts the tokens that are read."""

    tags = {"generation"}  # noqa: RUF012 - as the base class has it

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        return nodes.Scope(parser.parse_statements(("name:endgeneration",), drop_needle=True), lineno=line)

    def filter_stream(self, stream: TokenStream) -> Iterator[Token]:
        for token in stream:
            self.environment.deadline.step()  # type: ignore[attr-defined]
            yield token


class _Break(Exception):
    pass


class _Continue(Exception):
    pass


class _Scope:
    """Names, and those around them."""

    def __init__(self, names: dict[str, Any], around: _Scope | None = None) -> None:
        self.names = names
        self._around = around

    def find(self, name: str) -> Any:
        scope: _Scope | None = self
        while scope is not None:
            if name in scope.names:
                return scope.names[name]
            scope = scope._around
        return Undefined(name=name)


class TemplateRenderer:
    """One template, read once. Raises TemplateRefused."""

    def __init__(self, source: str, limit_s: float = LIMIT_S) -> None:
        if len(source) > LONGEST_TEMPLATE:
            raise TemplateRefused(f"has {len(source):,} characters, and at most {LONGEST_TEMPLATE:,} are read")
        self._deadline = _Deadline(limit_s)
        environment = Environment(
            trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols", _Bounds], cache_size=0
        )
        environment.deadline = self._deadline  # type: ignore[attr-defined]
        self._deadline.start()
        try:
            self._tree = environment.parse(source)
        except _FAILURES as error:
            raise _refusal(error, "cannot be read") from None
        finally:
            self._deadline.stop()
        self._out: list[str] = []
        self._written = 0

    def render(self, **variables: Any) -> str:
        """The text for these variables."""
        self._out, self._written = [], 0
        self._deadline.start()
        try:
            self._run(self._tree.body, _Scope({**GLOBALS, **variables}))
        except (_Break, _Continue):
            raise TemplateRefused("leaves a loop outside of one") from None
        except _FAILURES as error:
            raise _refusal(error, "fails") from None
        finally:
            self._deadline.stop()
        return "".join(self._out)

    # --- statements ---

    def _run(self, body: Sequence[nodes.Node], scope: _Scope) -> None:
        for node in body:
            self._deadline.step()
            statement = _STATEMENTS.get(type(node))
            if statement is None:
                raise TemplateRefused(f"has the statement {type(node).__name__.lower()!r}, which is not allowed")
            statement(self, node, scope)

    def _write(self, text: str) -> None:
        self._written += len(text)
        if self._written > LONGEST:
            raise TemplateRefused(f"makes a text of more than {LONGEST:,} characters")
        self._out.append(text)

    def _captured(self, body: Sequence[nodes.Node], scope: _Scope) -> str:
        before, self._out = self._out, []
        try:
            self._run(body, scope)
            return "".join(self._out)
        finally:
            self._out = before

    def _output(self, node: Any, scope: _Scope) -> None:
        for each in node.nodes:
            self._write(each.data if isinstance(each, nodes.TemplateData) else str(self._value(each, scope)))

    def _if(self, node: Any, scope: _Scope) -> None:
        for branch in (node, *node.elif_):
            if self._value(branch.test, scope):
                return self._run(branch.body, scope)
        return self._run(node.else_, scope)

    def _for(self, node: Any, scope: _Scope) -> None:
        if node.recursive:
            raise TemplateRefused("has a recursive loop, which is not allowed")
        values = list(self._value(node.iter, scope))
        if node.test is not None:
            values = [each for each in values if self._value(node.test, self._bound(node.target, each, scope))]
        for at, each in enumerate(values):
            inner = self._bound(node.target, each, scope)
            inner.names["loop"] = _loop(values, at)
            try:
                self._run(node.body, inner)
            except _Continue:
                continue
            except _Break:
                break
        if not values:
            self._run(node.else_, scope)

    def _bound(self, target: Any, value: Any, scope: _Scope) -> _Scope:
        inner = _Scope({}, scope)
        self._set(target, value, inner)
        return inner

    def _set(self, target: Any, value: Any, scope: _Scope) -> None:
        match target:
            case nodes.Name():
                scope.names[target.name] = value
            case nodes.NSRef():
                found = scope.find(target.name)
                if not isinstance(found, Namespace):
                    raise TemplateRefused(f"sets a part of {target.name!r}, which is no namespace")
                found[target.attr] = value
            case nodes.Tuple():
                for each, part in zip(target.items, value, strict=True):
                    self._set(each, part, scope)

    def _assign(self, node: Any, scope: _Scope) -> None:
        self._set(node.target, self._value(node.node, scope), scope)

    def _assign_block(self, node: Any, scope: _Scope) -> None:
        text = self._captured(node.body, _Scope({}, scope))
        self._set(node.target, self._filtered(node.filter, scope, text) if node.filter else text, scope)

    def _inner(self, node: Any, scope: _Scope) -> None:
        self._run(node.body, _Scope({}, scope))

    def _macro(self, node: Any, scope: _Scope) -> None:
        def call(*args: Any, **named: Any) -> str:
            names = [each.name for each in node.args]
            given = dict(zip(names, args, strict=False)) | named
            inner = _Scope(given, scope)
            for name, default in zip(names[len(names) - len(node.defaults) :], node.defaults, strict=True):
                if name not in given:
                    given[name] = self._value(default, inner)
            for name in names:
                given.setdefault(name, Undefined(name=name))
            return self._captured(node.body, inner)

        scope.names[node.name] = Function(call)

    def _break(self, node: Any, scope: _Scope) -> None:
        raise _Break

    def _continue(self, node: Any, scope: _Scope) -> None:
        raise _Continue

    # --- values ---

    def _value(self, node: Any, scope: _Scope) -> Any:
        self._deadline.step()
        evaluate = _EVALUATORS.get(type(node))
        if evaluate is None:
            raise TemplateRefused(f"has the expression {type(node).__name__.lower()!r}, which is not allowed")
        return evaluate(self, node, scope)

    def _attribute(self, node: Any, scope: _Scope) -> Any:
        value = self._value(node.node, scope)
        name = node.attr if isinstance(node, nodes.Getattr) else self._value(node.arg, scope)
        if isinstance(name, str) and name.startswith("_"):
            raise TemplateRefused(f"asks for the attribute {name[:40]!r}, which is not allowed")
        if isinstance(node, nodes.Getattr) and not isinstance(value, Namespace):
            rows = next((rows for kind, rows in METHODS.items() if isinstance(value, kind)), {})
            if (method := rows.get(name)) is not None:
                return Function(lambda *args, **named: method(value, *args, **named))
        return self._item(value, name, node)

    def _item(self, value: Any, name: Any, node: Any) -> Any:
        if isinstance(value, Undefined):
            raise TemplateRefused(f"reads {str(name)[:40]!r} of {value._undefined_name!r}, which is not there")
        if isinstance(node, nodes.Getitem) and isinstance(node.arg, nodes.Slice):
            return value[name]
        if isinstance(value, dict):
            return value[name] if name in value else Undefined(name=str(name))
        known = isinstance(value, list | tuple | str) and isinstance(name, int) and -len(value) <= name < len(value)
        return value[name] if known else Undefined(name=str(name))

    def _slice(self, node: Any, scope: _Scope) -> slice:
        return slice(*(self._value(each, scope) if each else None for each in (node.start, node.stop, node.step)))

    def _called(self, node: Any, scope: _Scope) -> Any:
        function = self._value(node.node, scope)
        if not isinstance(function, Function):
            raise TemplateRefused("calls what is no function, or one that is not allowed")
        return bounded(function.call(*self._args(node, scope), **self._named(node, scope)))

    def _filter(self, node: Any, scope: _Scope) -> Any:
        return self._filtered(node, scope, self._value(node.node, scope))

    def _filtered(self, node: Any, scope: _Scope, value: Any) -> Any:
        found = _row(FILTERS, node.name, "filter")
        return bounded(found(value, *self._args(node, scope), **self._named(node, scope)))

    def _args(self, node: Any, scope: _Scope) -> list[Any]:
        return [self._value(each, scope) for each in node.args]

    def _named(self, node: Any, scope: _Scope) -> dict[str, Any]:
        return {each.key: self._value(each.value, scope) for each in node.kwargs}

    def _test(self, node: Any, scope: _Scope) -> bool:
        return bool(_row(TESTS, node.name, "test")(self._value(node.node, scope), *self._args(node, scope)))

    def _compare(self, node: Any, scope: _Scope) -> Any:
        left = self._value(node.expr, scope)
        result: Any = True
        for operand in node.ops:
            right = self._value(operand.expr, scope)
            result = _COMPARE[operand.op](left, right)
            if not result:
                return result
            left = right
        return result

    def _choice(self, node: Any, scope: _Scope) -> Any:
        if self._value(node.test, scope):
            return self._value(node.expr1, scope)
        return self._value(node.expr2, scope) if node.expr2 else Undefined()

    def _binary(self, node: Any, scope: _Scope) -> Any:
        left, right = self._value(node.left, scope), self._value(node.right, scope)
        numbers = isinstance(left, int | float) and isinstance(right, int | float)
        if not numbers and not (isinstance(node, nodes.Add) and type(left) is type(right)):
            raise TemplateRefused(f"calculates ({node.operator}) with what are no numbers")
        return bounded(_BINARY[type(node)](left, right))


def _refusal(error: Exception, what: str) -> TemplateRefused:
    if isinstance(error, TemplateRefused):
        return error
    why = "it is nested too deeply" if isinstance(error, RecursionError | MemoryError) else str(error)[:200]
    return TemplateRefused(f"{what}: {why}")


def _row(rows: Mapping[str, Callable[..., Any]], name: str, kind: str) -> Callable[..., Any]:
    if name not in rows:
        raise TemplateRefused(f"uses the {kind} {name[:40]!r}, which is not allowed")
    return rows[name]


def _loop(values: Sequence[Any], at: int) -> dict[str, Any]:
    last = len(values) - 1
    return {
        "index": at + 1,
        "index0": at,
        "first": at == 0,
        "last": at == last,
        "length": len(values),
        "previtem": values[at - 1] if at else Undefined(name="previtem"),
        "nextitem": values[at + 1] if at < last else Undefined(name="nextitem"),
    }


_BINARY: Mapping[type, Callable[[Any, Any], Any]] = {
    nodes.Add: operator.add,
    nodes.Sub: operator.sub,
    nodes.Mul: operator.mul,
    nodes.Div: operator.truediv,
    nodes.FloorDiv: operator.floordiv,
    nodes.Mod: operator.mod,
}
Evaluate = Callable[[TemplateRenderer, Any, _Scope], Any]
_EVALUATORS: Mapping[type, Evaluate] = {
    nodes.Const: lambda self, node, scope: node.value,
    nodes.TemplateData: lambda self, node, scope: node.data,
    nodes.Name: lambda self, node, scope: scope.find(node.name),
    nodes.List: lambda self, node, scope: bounded([self._value(each, scope) for each in node.items]),
    nodes.Tuple: lambda self, node, scope: bounded(tuple(self._value(each, scope) for each in node.items)),
    nodes.Dict: lambda self, node, scope: bounded(
        {self._value(each.key, scope): self._value(each.value, scope) for each in node.items}
    ),
    nodes.Getattr: TemplateRenderer._attribute,
    nodes.Getitem: TemplateRenderer._attribute,
    nodes.Slice: TemplateRenderer._slice,
    nodes.Call: TemplateRenderer._called,
    nodes.Filter: TemplateRenderer._filter,
    nodes.Test: TemplateRenderer._test,
    nodes.Compare: TemplateRenderer._compare,
    nodes.CondExpr: TemplateRenderer._choice,
    nodes.Concat: lambda self, node, scope: bounded("".join(str(self._value(each, scope)) for each in node.nodes)),
    nodes.And: lambda self, node, scope: self._value(node.left, scope) and self._value(node.right, scope),
    nodes.Or: lambda self, node, scope: self._value(node.left, scope) or self._value(node.right, scope),
    nodes.Not: lambda self, node, scope: not self._value(node.node, scope),
    nodes.Neg: lambda self, node, scope: -self._value(node.node, scope),
    nodes.Pos: lambda self, node, scope: +self._value(node.node, scope),
    **dict.fromkeys(_BINARY, TemplateRenderer._binary),
}
_STATEMENTS: Mapping[type, Evaluate] = {
    nodes.Output: TemplateRenderer._output,
    nodes.If: TemplateRenderer._if,
    nodes.For: TemplateRenderer._for,
    nodes.Assign: TemplateRenderer._assign,
    nodes.AssignBlock: TemplateRenderer._assign_block,
    nodes.Scope: TemplateRenderer._inner,
    nodes.Macro: TemplateRenderer._macro,
    nodes.Break: TemplateRenderer._break,
    nodes.Continue: TemplateRenderer._continue,
}
