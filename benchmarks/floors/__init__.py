"""Servers that others are measured beside: the least that could be done, and ours without its log."""
