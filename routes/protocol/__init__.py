"""Request bodies, error answers, server-sent events, cursors."""
