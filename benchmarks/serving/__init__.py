"""Measurements of served models."""
