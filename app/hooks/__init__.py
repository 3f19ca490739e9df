"""Hooks: the operator's commands and URLs, asked or informed before and after model requests, calls and answers."""
