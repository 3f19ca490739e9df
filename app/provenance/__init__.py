"""Provenance of calls in text: quotations of what the model has read are not calls."""
