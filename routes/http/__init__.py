"""The handlers of the HTTP API: one module for each group of routes."""
