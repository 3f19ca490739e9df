"""Outputs of a hundred thousand lines in the page."""
