"""Grammars that a model's server enforces while it decodes, so that calls taught in the prompt are well-formed."""
