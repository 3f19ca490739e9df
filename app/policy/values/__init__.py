"""Decisions by value: what the values of a call are for, and whether they are the person's own."""
