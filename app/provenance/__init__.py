"""Provenance in what the model has read: calls in text that are quotations, and where arguments come from."""
