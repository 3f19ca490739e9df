"""Chat templates that a stranger wrote are rendered within bounds, and refused in words."""

from __future__ import annotations

import time

import pytest

from app.models.templates import sandbox
from app.models.templates.reading import read_template
from app.models.templates.renderer import LONGEST_TEMPLATE, TemplateProcess, TemplateRefused
from tests.support.models.templates import AS_OBJECT

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
    "a syntax error": "{% for %}",
    "an open block": "{% if 1 %}",
    "a text that is a call": "{{ 'a'() }}",
    "a huge number": "{{ " + "9" * 5000 + " }}",
    "a changed list": "{{ messages.append(messages) }}",
    "deep JSON": "{% set ns = namespace(x=[]) %}{% for i in range(900) %}{% set ns.x = [ns.x] %}{% endfor %}"
    "{{ ns.x | tojson(indent=1000000) }}{{ raise_exception('end') }}",
    "a break outside": "{% break %}",
    "a constant of ten million digits": "{{ 7 ** (10 ** 7) }}",
    "a constant text": "{{ ('a' | center(10 ** 8)) | replace('a', 'b') }}",
}
SLOW = (
    "loops",
    "a macro that calls itself twice",
    "doubling lists",
    "a constant of ten million digits",
    "a constant text",
)


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_template_is_refused_in_words(name: str) -> None:
    with pytest.raises(TemplateRefused) as refusal, TemplateProcess(HOSTILE[name]) as template:
        template.render(messages=[QUESTION], tools=None, add_generation_prompt=True)
    assert 8 < len(str(refusal.value)) < 400
    assert "Traceback" not in str(refusal.value)


@pytest.mark.parametrize("name", SLOW)
def test_the_kernel_ends_a_template_after_80_milliseconds_of_its_time(name: str) -> None:
    reading = read_template(HOSTILE[name])
    assert sandbox.LIMIT_S == 0.08
    assert (reading.grammar, reading.known, reading.reason) == (None, "", "the template takes too long")


def test_a_template_that_is_too_long_is_not_even_read() -> None:
    with pytest.raises(TemplateRefused, match="at most"):
        TemplateProcess("{% for %}" + "a" * LONGEST_TEMPLATE)


@pytest.mark.parametrize(
    ("mark", "reason"),
    [
        ("{% for a in range(1000) %}" * 3 + "{% endfor %}" * 3, "takes too long"),
        ("{{ '[' * 1900 }}", "in none of the known forms"),
        ("{{ '[1,' * 600 }}", "in none of the known forms"),
        ("{{ '[' * 6000 }}", "longer than"),
        ("<|zz|>" + "```\n" * 200, "longer than"),
        *((f"<|zz{chr(0xE000 + mask)}|>", "private use") for mask in range(8)),
    ],
)
def test_calls_of_a_hostile_template_are_read_within_bounds(mark: str, reason: str) -> None:
    """Its prompt is right, and what it makes of calls is not."""
    began = time.thread_time()
    reading = read_template(AS_OBJECT.replace("<|zz|>", mark))
    assert reading.grammar is None and reason in reading.reason
    assert time.thread_time() - began < 2.0


def test_the_words_of_a_template_reach_no_terminal_as_codes() -> None:
    assert read_template("{{ raise_exception('\x1b[31mno\x07') }}").reason.endswith(r"\x1b[31mno\x07")


def test_names_loops_macros_and_texts() -> None:
    source = (
        "{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + loop.index %}{% endfor %}{{ ns.n }}"
        "{% macro m(a, b='x') %}<{{ a.strip() }}{{ b | upper }}{{ caller() }}>{% endmacro %}"
        "{% call m(' c ') %}in{% endcall %}"
        "{% for m in messages %}{{ m.role.title() }}{{ m.missing is defined }}{% endfor %}"
        "a{% generation %}b{{ 1 }}{% endgeneration %}c{{ {'b': '<', 'a': none} | tojson }}{{ strftime_now('%Y') }}"
    )
    with TemplateProcess(source) as template:
        assert template.render(messages=[QUESTION]) == '1<cXin>UserFalseab1c{"b": "<", "a": null}2026-01-01'
        assert template.render(messages=[]).startswith("0<cXin>")


def test_a_template_may_refuse_what_it_is_given_and_goes_on() -> None:
    with TemplateProcess("{% if a %}{{ raise_exception('no a') }}{% endif %}b") as template:
        with pytest.raises(TemplateRefused, match="it refuses these messages: no a"):
            template.render(a=1)
        assert template.render() == "b"
