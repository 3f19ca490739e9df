"""Other people's clients at a server, unmodified: environments, a script for each, and the model that they reach."""
