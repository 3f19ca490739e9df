"""Settings: each field, where values come from, what they may name."""
