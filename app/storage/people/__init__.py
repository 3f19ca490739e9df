"""Rows of people and of what is theirs to use: sign-ins, stored prompts, defaults of conversations, secrets."""
