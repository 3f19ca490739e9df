"""Administration of the server: endpoints, tokens, settings, the audit log and the kill switch."""
