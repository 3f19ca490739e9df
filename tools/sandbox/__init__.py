"""Bubblewrap, Landlock, protected files, and the network of a sandboxed command."""
