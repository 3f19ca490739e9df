"""Secrets out of events, logs, outputs and stored rows."""
