"""The MCP extensions that the host supports, declared to each server in both eras of the protocol."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mcp.client.extension import ClientExtension, advertise

from tools.mcp.definitions import PAGE_TYPE

APPS = "io.modelcontextprotocol/ui"
TASKS = "io.modelcontextprotocol/tasks"
SKILLS = "io.modelcontextprotocol/skills"

EXTENSIONS: Mapping[str, Mapping[str, Any]] = {  # with the settings that the server gets
    TASKS: {},  # https://github.com/modelcontextprotocol/ext-tasks
    SKILLS: {},  # https://github.com/modelcontextprotocol/ext-skills
    APPS: {"mimeTypes": [PAGE_TYPE]},  # https://github.com/modelcontextprotocol/ext-apps
}


def declared() -> list[ClientExtension]:
    """Return the table as the SDK takes it. Result shapes are normalised in `repair`, so no row claims any."""
    return [advertise(name, dict(settings)) for name, settings in EXTENSIONS.items()]
