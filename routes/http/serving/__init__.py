"""Served models over HTTP: added, served, stopped and removed by admins."""
