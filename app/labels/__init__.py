"""Sensitivity labels: of what a conversation has read, of the files that it writes, and of where its requests go."""
