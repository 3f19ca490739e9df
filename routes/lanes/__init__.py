"""Lanes: the wire formats of clients that exist, each a reader of its requests and a table from events to frames."""
