"""Child processes: process trees, limits, environment, and ending all of it."""
