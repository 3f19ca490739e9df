"""Redaction of secrets in events, logs, outputs and stored rows."""
