"""Knowledge: files of the workspace and documents of conversations, found by words and by meaning."""
