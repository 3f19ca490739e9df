"""Provenance of text: quotations are no calls, where arguments come from, and untrusted text that is known again."""
