"""Titles and summaries of conversations that a model writes, as durable jobs."""
