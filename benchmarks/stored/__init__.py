"""Benchmarks of what is stored of runs."""
