"""Schedules and triggers, which begin runs without a request."""
