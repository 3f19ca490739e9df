"""The protocol's JSON schema (version 1, without its descriptions), for each frame that an agent sends."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from jsonschema import Draft202012Validator

from tests import ROOT


@cache
def _definitions() -> dict[str, Any]:
    read: dict[str, Any] = json.loads((ROOT / "fixtures/acp/schema.json").read_text())["$defs"]
    return read


@cache
def _validator(name: str) -> Draft202012Validator:
    return Draft202012Validator({"$ref": f"#/$defs/{name}", "$defs": _definitions()})


@cache
def _names(suffix: str) -> dict[str, str]:
    """The definitions by their methods."""
    rows = _definitions().items()
    return {row["x-method"]: name for name, row in rows if "x-method" in row and name.endswith(suffix)}


def problems(frame: dict[str, Any], asked: dict[Any, str]) -> list[str]:
    """What is wrong with a frame of the agent; `asked` are the methods of the editor's requests by their ids."""
    if frame.get("jsonrpc") != "2.0":
        return ["jsonrpc is missing"]
    if method := frame.get("method"):
        suffix = "Request" if "id" in frame else "Notification"
        return _wrong(_names(suffix)[method], frame.get("params"))
    if "error" in frame:
        return _wrong("Error", frame["error"])
    return _wrong(_names("Response")[asked[frame["id"]]], frame["result"])


def _wrong(name: str, value: Any) -> list[str]:
    return [f"{name}: {error.json_path} {error.message}"[:500] for error in _validator(name).iter_errors(value)]
