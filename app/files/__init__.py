"""Files that people send: what they are, and how their bytes come back out of the store."""
