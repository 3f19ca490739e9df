"""Types that every tool uses: results, schemas, rights, permits, the workspace."""
