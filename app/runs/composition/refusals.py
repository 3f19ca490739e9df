"""Refusals of a run's options."""

from __future__ import annotations

from app.config.folders import FolderUnsafe
from app.core.profile_spec import ModeFixed
from app.models.endpoints.model_registry import UnknownModel
from app.profiles.library import ProfileMissing, UnknownProfile


class ModeForbidden(Exception):
    """The approval mode is not for this principal."""


class UnknownTool(Exception):
    """A request names a tool that it may not use. The message says which there are."""


# Why an agent with these options cannot be made, for this principal.
UNFIT = (UnknownModel, UnknownTool, ModeForbidden, FolderUnsafe, UnknownProfile, ProfileMissing, ModeFixed)
