"""The commands of a conversation at a terminal."""
