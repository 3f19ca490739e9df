"""The caller's workspace over HTTP: looked at, and changed by a person."""
