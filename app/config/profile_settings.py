"""Settings of profiles: named options of runs (`[profiles.NAME]` in the settings file)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import AfterValidator, BaseModel

from app.core.profile_spec import ProfileSpec, checked_profile_name
from app.core.settings_fields import setting


class ProfileSettings(BaseModel, defer_build=True):
    """Profiles."""

    profiles: Mapping[Annotated[str, AfterValidator(checked_profile_name)], ProfileSpec] = setting(
        {},
        "profiles by name: options of runs that only narrow rights",
        'tables by names such as {prompt = "Answer in French.", tools = ["read_*"], max_rounds = 5}, with the keys in '
        "docs/profiles.md",
    )
