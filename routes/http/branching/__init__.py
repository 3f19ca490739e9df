"""Routes of branches of conversations: forks between runs and inside of them, and what was changed there."""
