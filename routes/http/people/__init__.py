"""Routes about people: lasting sign-ins, who there is, stored prompts, and defaults of new conversations."""
