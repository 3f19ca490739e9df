"""Settings of schedules and triggers."""

from __future__ import annotations

from pydantic import BaseModel

from app.core.settings_fields import whole


class AutomationSettings(BaseModel, defer_build=True):
    """Runs that begin without a request."""

    max_schedules: int = whole(
        50, 0, 1000, "schedules of one principal, and as many triggers; 0 holds all of them and takes no new ones"
    )
