"""Protocols of what tools may reach of the server around them, which `Context` carries."""
