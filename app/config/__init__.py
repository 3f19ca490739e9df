"""Settings: their fields, sources and checks."""
