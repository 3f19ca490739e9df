"""Settings of runs that runs begin: helpers, and messages to other sessions."""

from __future__ import annotations

from pydantic import BaseModel

from app.core.settings_fields import setting, whole


class HelperSettings(BaseModel, defer_build=True):
    """Helpers and other sessions."""

    helpers: bool = setting(
        False,
        "offer `delegate`, which has a helper do a task, and `ask_model`, a question to a model",
        "true or false",
    )
    max_helpers: int = whole(16, 1, 200, "helpers that one run may begin, those of its helpers included")
    helpers_parallel: int = whole(4, 1, 16, "helpers of one run that work at the same time")
    helper_depth: int = whole(1, 1, 2, "levels of helpers below a run; 2 lets helpers begin helpers")
    session_tools: bool = setting(
        False, "offer tools that list, read and write to the other sessions of the same principal", "true or false"
    )
