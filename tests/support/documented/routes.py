"""All routes, which a server imports in two parts."""

from __future__ import annotations

from routes.catalogue import EARLY, late_routes

ROUTES = (*EARLY, *late_routes())
