"""Read-only looks at a stored database, for diagnosis: nothing is created, migrated or locked."""
