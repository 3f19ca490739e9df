"""A run as lines of a terminal."""
