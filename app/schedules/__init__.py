"""Schedules and triggers: stored messages that begin runs at their times, or when a webhook is delivered."""
