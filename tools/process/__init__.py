"""Child processes: process trees, resource limits, unsafe environment variables, the orphan reaper."""
