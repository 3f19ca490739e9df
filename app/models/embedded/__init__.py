"""Embedded model: a llama.cpp child process, its supervisor, and the provider in front of it."""
