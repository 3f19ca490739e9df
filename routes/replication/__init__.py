"""The other servers of the database: none, or several, with which runs, jobs and changes are shared."""
