"""People's own rows: browsers that stay signed in, stored prompts, and defaults of new conversations."""
