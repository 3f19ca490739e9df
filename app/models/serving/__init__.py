"""Served models: GGUF files on this machine, each with a llama.cpp server of its own while it is used."""
