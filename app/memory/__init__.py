"""Memory over conversations: rows of their owner, found by words and by meaning, and extracted after turns."""
