"""The network of a sandboxed command: a filtering proxy outside, reached through the loopback inside."""
