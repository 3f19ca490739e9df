"""The relay: one round of a model for clients with a loop of their own, its calls mended."""
