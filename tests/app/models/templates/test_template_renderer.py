"""Chat templates rendered within bounds: as jinja2 renders them, and never longer than a moment."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
from jinja2.sandbox import ImmutableSandboxedEnvironment

from app.models.templates.reading import read_template
from app.models.templates.renderer import LONGEST_TEMPLATE, TemplateRenderer
from app.models.templates.values import FILTERS, TESTS, TemplateRefused
from parsing.templates.probes import HARD, PARALLEL, SINGLE
from tests.support.parsing.held_out import TEMPLATES

MOMENT_S = 0.1
QUESTION = {"role": "user", "content": "How late is it?"}
DOUBLING = "{% set ns = namespace(x='ab') %}{% for i in range(60) %}{% set ns.x = ns.x STEP %}{% endfor %}{{ ns.x }}"
HOSTILE = {
    "loops": "{% for a in range(1000) %}" * 3 + "{% endfor %}" * 3,
    "a long range": "{% for a in range(10**9) %}{% endfor %}",
    "a range of 10 million": "{% for a in range(10000000) %}{% endfor %}",
    "a megabyte": "{{ a }}" * 150_000,
    "a megabyte of text": "a" * 1_000_000,
    "many tokens": "{{ a }}" * 18_000,
    "raises": "{{ raise_exception('no tools') }}",
    "raises by itself": "{{ 1 / 0 }}",
    "a text times": "{{ 'a' * 10**9 }}",
    "a list times": "{{ ([1] * 10**9) | length }}",
    "a power": "{{ 10 ** 10 ** 10 }}",
    "numbers squared": "{% set ns = namespace(x=7) %}{% for i in range(60) %}{% set ns.x = ns.x * ns.x %}{% endfor %}",
    "centre": "{{ 'a' | center(10**9) }}",
    "centre as a method": "{{ 'a'.center(1000000000) }}",
    "just": "{{ 'a'.ljust(1000000000) }}",
    "zeros": "{{ '1'.zfill(1000000000) }}",
    "tabs": "{{ '\t'.expandtabs(1000000000) }}",
    "format": "{{ '%1000000000d' % 1 }}",
    "format filter": "{{ '%1000000000d' | format(1) }}",
    "format method": "{{ '{:>1000000000}'.format('a') }}",
    "format of attributes": "{{ '{0.__class__}'.format('a') }}",
    "indent": "{{ 'a\nb' | indent(1000000000) }}{% for i in range(1000) %}{{ 'a' | nothing }}{% endfor %}",
    "doubling by ~": DOUBLING.replace("STEP", "~ ns.x"),
    "doubling by +": DOUBLING.replace("STEP", "+ ns.x"),
    "doubling by join": DOUBLING.replace("ns.x STEP", "[ns.x, ns.x] | join"),
    "doubling by replace": DOUBLING.replace("ns.x STEP", "ns.x | replace('a', 'aa')"),
    "doubling lists": DOUBLING.replace("'ab'", "[1]").replace("ns.x STEP", "[ns.x, ns.x]"),
    "doubling lists by +": DOUBLING.replace("'ab'", "[1]").replace("STEP", "+ ns.x"),
    "doubling by a block": "{% set x = 'ab' %}" + "{% set x %}{{ x }}{{ x }}{% endset %}" * 40 + "{{ x }}",
    "a macro that calls itself": "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
    "a macro that calls itself twice": "{% macro m(n) %}{% if n %}{{ m(n - 1) }}{{ m(n - 1) }}{% endif %}{% endmacro %}"
    "{{ m(60) }}",
    "a recursive loop": "{% for a in [[1]] recursive %}{{ loop([a]) }}{% endfor %}",
    "deep brackets": "{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}",
    "deep lists": "{{ " + "[" * 5000 + "]" * 5000 + " }}",
    "a long sum": "{{ 1" + " + 1" * 20_000 + " }}",
    "a long chain": "{{ a" + ".b" * 20_000 + " }}",
    "deep ifs": "{% if 1 %}" * 5000 + "{% endif %}" * 5000,
    "attributes": "{{ ''.__class__.__mro__ }}",
    "attributes by name": "{{ ''['__class__'] }}",
    "attributes by a filter": "{{ '' | attr('__class__') }}",
    "attributes by map": "{{ [''] | map(attribute='__class__') | list }}{{ ''._x }}",
    "globals of a function": "{{ raise_exception.__globals__ }}",
    "a function's code": "{{ namespace.call.__func__ }}",
    "an include": "{% include '/etc/passwd' %}",
    "an import": "{% import 'os' as os %}",
    "an unknown statement": "{% do x.append(1) %}",
    "a call block": "{% macro m() %}{% endmacro %}{% call m() %}{% endcall %}",
    "a syntax error": "{% for %}",
    "an open block": "{% if 1 %}",
    "a text that is a call": "{{ 'a'() }}",
    "a huge number": "{{ " + "9" * 5000 + " }}",
    "a changed list": "{{ messages.append(messages) }}",
    "deep JSON": "{% set ns = namespace(x=[]) %}{% for i in range(900) %}{% set ns.x = [ns.x] %}{% endfor %}"
    "{{ ns.x | tojson(indent=1000000) }}{{ raise_exception('end') }}",
    "a break outside": "{% break %}",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_template_is_refused_in_words_within_a_moment(name: str) -> None:
    began = time.thread_time()
    with pytest.raises(TemplateRefused) as refusal:
        TemplateRenderer(HOSTILE[name]).render(messages=[QUESTION], tools=None, add_generation_prompt=True)
    assert time.thread_time() - began < MOMENT_S
    assert 8 < len(str(refusal.value)) < 400
    assert "Traceback" not in str(refusal.value)


@pytest.mark.parametrize("name", HOSTILE)
def test_reading_a_hostile_template_never_raises(name: str) -> None:
    began = time.thread_time()
    reading = read_template(HOSTILE[name])
    assert time.thread_time() - began < 2 * MOMENT_S  # with what is done with the text
    assert reading.grammar is None and not reading.known and reading.reason


def test_a_template_that_is_too_long_is_not_even_read() -> None:
    with pytest.raises(TemplateRefused, match="at most"):
        TemplateRenderer("{% for %}" + "a" * LONGEST_TEMPLATE)


def conversations() -> Iterator[dict[str, Any]]:
    yield {"messages": [QUESTION, {"role": "assistant", "content": "Late."}], "add_generation_prompt": True}
    for calls in (SINGLE, PARALLEL, HARD):
        called = [
            {"id": f"call{at}", "type": "function", "function": {"name": name, "arguments": arguments}}
            for at, (name, arguments) in enumerate(calls)
        ]
        yield {"messages": [QUESTION, {"role": "assistant", "content": "", "tool_calls": called}]}


def as_jinja2_does(source: str, **variables: Any) -> str:
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    environment.filters["tojson"] = lambda value: json.dumps(value, ensure_ascii=False)
    return environment.from_string(source).render(**variables)


@pytest.mark.parametrize("dialect", TEMPLATES)
def test_a_template_is_rendered_as_jinja2_renders_it(dialect: str) -> None:
    source = TEMPLATES[dialect].read_text("utf-8")
    for conversation in conversations():
        assert TemplateRenderer(source).render(**conversation) == as_jinja2_does(source, **conversation)


SNIPPETS = (
    "{% set x = 1 %}{% for i in [1, 2] %}{% set x = i %}{% endfor %}{{ x }}",
    "{% set ns = namespace(n=0) %}{% for i in range(3) if i != 1 %}{% set ns.n = ns.n + i %}{% endfor %}{{ ns.n }}",
    "{% for k, v in {'a': 1, 'b': [2]}.items() %}{{ loop.index }}/{{ loop.length }} {{ k }}={{ v }}{% endfor %}",
    "{% macro m(a, b='x') %}<{{ a }}{{ b }}>{% endmacro %}{{ m(1) }}{{ m(b=2, a=3) }}",
    "{% for i in [] %}x{% else %}none{% endfor %}{% for i in [1, 2, 3] %}{{ i if not loop.last }}{% endfor %}",
    "{{ messages[0].content[:3] }}{{ messages[-1]['role'] | upper }}{{ messages[0].missing }}{{ missing is defined }}",
    "{{ 'a,b'.split(',') | join('-') }}{{ ' x '.strip() }}{{ 'abc'[::-1] }}{{ 'abc' | replace('b', '') }}",
    "{{ {'b': 1, 'a': {'x': none}} | tojson }}{{ [3, 1, 2] | sort | first }}{{ {'b': 2, 'a': 1} | dictsort }}",
    "{{ messages | selectattr('role', 'equalto', 'user') | map(attribute='content') | list }}",
    "{% set x %}a{{ 1 + 2 * 3 - 4 // 3 }}{% endset %}{{ x ~ true ~ none }}{{ 7 % 4 }}{{ -3 | abs }}",
    "{% if not 1 > 2 and 'a' in 'abc' and 3 not in [1] %}yes{% elif 1 %}no{% endif %}{{ 'x' if 0 else 'y' }}",
    "{% set a, b = 1, 2 %}{{ a + b }}{{ ''|default('d', true) }}",
    "{{ 'a\nb' | indent(2) }}{{ 'a b'.title() }}{{ 1 is number }}{{ 'x' is string }}{{ {} is mapping }}",
    "{{ '{} and {n}'.format(1, n=2) }}{{ '3' | int + 1 }}{{ 'x' | int }}{{ [1, [2]] | string }}{{ 1.0 }}",
)


@pytest.mark.parametrize("source", SNIPPETS)
def test_a_snippet_is_rendered_as_jinja2_renders_it(source: str) -> None:
    assert TemplateRenderer(source).render(messages=[QUESTION]) == as_jinja2_does(source, messages=[QUESTION])


def test_blocks_of_generated_text_are_their_content() -> None:
    assert TemplateRenderer("a{% generation %}b{{ 1 }}{% endgeneration %}c").render() == "ab1c"


@pytest.mark.parametrize("name", sorted(FILTERS))
def test_no_filter_lets_a_failure_of_its_own_out(name: str) -> None:
    for value in ("none", "missing", "[1, 'a']", "{'a': 1}", "'text'", "1"):
        for arguments in ("", "('a', 'b', 'c', 'd', 'e')", "(none)"):
            try:
                TemplateRenderer(f"{{{{ {value} | {name}{arguments} }}}}").render()
            except TemplateRefused as refusal:
                assert str(refusal)


@pytest.mark.parametrize("name", sorted(TESTS))
def test_no_test_lets_a_failure_of_its_own_out(name: str) -> None:
    for value in ("none", "missing", "[1]", "'text'", "1"):
        try:
            TemplateRenderer(f"{{{{ {value} is {name} }}}}").render()
        except TemplateRefused as refusal:
            assert str(refusal)
