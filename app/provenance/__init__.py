"""Provenance of text: a quotation of what the model has read is no call, and untrusted text is known again."""
