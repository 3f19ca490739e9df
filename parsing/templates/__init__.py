"""Dialects derived from what a model's template makes of known calls. No template is rendered here."""
