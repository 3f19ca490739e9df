"""What a model's template says of its calls, and the files that templates are read from."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from app.models.serving.refusals import UnfitFile
from app.models.serving.template_files import templates_in
from app.models.templates.reading import read_template
from routes.cli.main import main
from tests.support.models.templates import AS_OBJECT, UNKNOWN
from tests.support.parsing.held_out import TEMPLATES

AS_TEXT = UNKNOWN.replace("ARGUMENTS", "'' + c.function.arguments")
ONE_CALL = AS_OBJECT.replace(
    "{%- for c", "{%- if m.tool_calls | length > 1 -%}{{ raise_exception('one') }}{%- endif -%}{%- for c"
)
BY_ID = UNKNOWN.replace("{{ c.function.name }}", "{{ c.id }}").replace("ARGUMENTS", "c.function.arguments | tojson")


@pytest.mark.parametrize("template", [AS_OBJECT, AS_TEXT, ONE_CALL, BY_ID], ids=["object", "text", "one call", "by id"])
def test_a_grammar_is_derived_for_a_template_that_no_row_knows(template: str) -> None:
    reading = read_template(template)
    assert reading.grammar is not None, reading.reason
    assert reading.grammar.begin.startswith("<|zz|>") and reading.grammar.end == "<|zz_end|>"
    assert reading.prompt_suffix == "<|eos|><|bot|>"


def test_nothing_is_derived_where_the_table_reads_the_calls() -> None:
    reading = read_template(TEMPLATES["hermes"].read_text("utf-8"))
    assert (reading.known, reading.grammar, reading.reason) == ("hermes", None, "")


def test_a_template_without_calls() -> None:
    reading = read_template("{% for m in messages %}{{ m.content }}{% endfor %}")
    assert reading.grammar is None and "does not write the calls" in reading.reason


def test_a_response_template_goes_first() -> None:
    response = {"fields": {"tool_calls": {"open": "<|zz|>", "close": "<|/zz|>", "content": "json", "repeats": True}}}
    reading = read_template(TEMPLATES["hermes"].read_text("utf-8"), json.dumps(response))
    assert reading.grammar is not None and reading.grammar.begin == "<|zz|>"


def test_a_response_template_that_cannot_be_read_leaves_the_chat_template() -> None:
    assert read_template(TEMPLATES["hermes"].read_text("utf-8"), '{"fields": {}}').known == "hermes"


def test_the_templates_of_a_tokenizer(tmp_path: Path) -> None:
    file = tmp_path / "tokenizer_config.json"
    named = [{"name": "default", "template": "a"}, {"name": "tool_use", "template": "b"}]
    for chat, wanted in (("a", "a"), (named, "b"), (named[:1], "a")):
        file.write_text(json.dumps({"chat_template": chat, "response_template": {"fields": {}}}))
        found = templates_in(file)
        assert (found.chat, found.response) == (wanted, '{"fields": {}}')


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("tokenizer_config.json", "{}", "neither"),
        ("tokenizer_config.json", "[1", "no JSON"),
        ("tokenizer_config.json", '{"chat_template": 3}', "neither"),
        ("tokenizer_config.json", '{"chat_template": [{"name": [1], "template": "a"}]}', "neither"),
        ("model.gguf", "GGUX", "no GGUF file"),
    ],
)
def test_a_file_without_a_template(tmp_path: Path, name: str, content: str, reason: str) -> None:
    file = tmp_path / name
    file.write_text(content)
    with pytest.raises(UnfitFile, match=reason):
        templates_in(file)


def test_what_is_derived_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "chat.jinja"
    file.write_text(AS_OBJECT)
    assert main(["dialects", "--template", str(file)]) == 0
    shown = capsys.readouterr().out
    for words in (
        "no dialect reads its calls",
        "the name, then the arguments as JSON",
        "<|zz|>NAME<|args|>",
        "<|zz_end|>",
    ):
        assert words in shown
    file.write_text(TEMPLATES["kimi_k2"].read_text("utf-8"))
    assert main(["dialects", "--template", str(file)]) == 0
    assert "are read as kimi_k2" in capsys.readouterr().out


def test_what_is_wrong_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "chat.jinja"
    assert main(["dialects", "--template", str(file)]) == 2
    assert "cannot be read" in capsys.readouterr().err
    file.write_text("{{ 'a' * 10**9 }}")
    assert main(["dialects", "--template", str(file)]) == 1
    assert "no grammar" in capsys.readouterr().err
