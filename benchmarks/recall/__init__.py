"""Recall of the memory over conversations."""
