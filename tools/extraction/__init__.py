"""Text of documents: found and read by libraries that run in a box of their own, never in the server."""
