"""Conversations that come from files of other programs, and that leave as files."""
