"""Embedders: what makes vectors of texts, in this process or by an endpoint."""
