"""Reading shell commands: which only read, which need network."""
