"""Analysis of shell commands: the ones that only read, and the ones that need the network."""
