"""Metrics of one server: a table of what is measured, the figures, and their text for Prometheus."""
