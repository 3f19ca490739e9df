"""Diagnosis of a model server: short prompts, judged by the bytes of its answers; no tool is run."""
