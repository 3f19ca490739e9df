"""Profiles: named options of runs that only narrow rights; the cascade of settings, profile, session and request."""
