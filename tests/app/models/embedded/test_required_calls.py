"""Grammars of the tools with the embedded model, for real: a required call is whole, and as its schema wants it."""

from __future__ import annotations

from datetime import date
from functools import partial
from typing import Any

import pytest

from app.context.prompt import opening
from app.core.messages import Message
from app.core.provider import ModelRequest, ProviderNotice, TextChunk
from parsing import parse
from tests.support.models.real_models import embedded, need_embedded, pieces_of
from tools.base.schemas import argument_error
from tools.catalogue import TOOLS
from tools.tool import ToolList

pytestmark = pytest.mark.anyio
OFFERED = ToolList(tool for tool in TOOLS if tool.name in ("bash", "list_files"))
SCHEMAS = OFFERED.schemas


@pytest.fixture(scope="module", autouse=True)
def installed() -> None:
    need_embedded()


def named(name: str) -> Any:
    return {"type": "function", "function": {"name": name}}


async def test_a_required_call_is_made_whatever_is_asked() -> None:
    async with embedded() as (_, provider):
        await provider.window()
        assert provider.ability("tool_grammar").value == "llama.cpp"
        begin = partial(opening, OFFERED, call_form=provider.call_form, workspace=None, today=date(2026, 11, 21))
        for choice, names in ("required", SCHEMAS.keys()), (named("list_files"), {"list_files"}):
            asked = ModelRequest(
                [Message("user", "Hello!")],
                OFFERED,
                256,
                opening=begin,
                parameters={"tool_choice": choice, "parallel_tool_calls": False},
            )
            pieces = await pieces_of(provider, asked)
            read = parse("".join(piece.text for piece in pieces if isinstance(piece, TextChunk)), SCHEMAS, fences=True)
            (call,) = read.calls
            assert argument_error(call.name, SCHEMAS[call.name], call.arguments) is None
            assert call.name in names
            assert not any(isinstance(piece, ProviderNotice) for piece in pieces)
